"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py)."""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
_ENGINE = _HERE.parent.parent / "engine"
entry, splice, kernel, inline = jit.decorators(_HERE, _ENGINE / "vllm" / "keys.py", _ENGINE / "sglang" / "content.py")
