"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py)."""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
entry, splice, kernel, inline = jit.decorators(_HERE, _HERE.parent / "engine" / "vllm" / "keys.py")
