"""``python -m simkv.bench`` (``make bench``): every figure of the README's speed section, measured in one go.

The machine's load moves absolute times, so each figure stands beside one measured in the same minute: events on beside
events off, loading beside replaying, ten times the trace beside the trace. Totals are asserted: a replay that does not
end with them has not done the work, however fast.
"""

from __future__ import annotations

import sys

from simkv.bench import suite
from simkv.bench.warm import warm
from simkv.commands.text import seconds


def main() -> int:
    """Measure everything and print Markdown. Returns 1 if a total was wrong."""
    print(f"compiled in {seconds(warm())}", file=sys.stderr)
    ok = True
    for section in suite.SECTIONS:
        title, lines, right = section()
        ok &= right
        print(f"### {title}\n\n" + "\n".join(lines) + "\n", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
