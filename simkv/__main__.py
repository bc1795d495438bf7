"""``python -m simkv`` is the command ``simkv``."""

import sys

from simkv.cli import main

if __name__ == "__main__":
    sys.exit(main())
