"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py).

Entries are called for every request, so what they cost before they do anything counts: give them plain arrays one by one
(``entry(*tree, *prompts, …)``; 8 arrays take 1 µs to unpack, a NamedTuple of 8 or two recarrays 10 µs) and put the
tuple together inside.
"""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
_ENGINE = _HERE.parent.parent / "engine"
_SHARED = [_ENGINE / "vllm" / "keys.py", _ENGINE / "sglang" / "content.py", _ENGINE / "sglang" / "links.py"]
entry, splice, kernel, inline = jit.decorators(_HERE, *_SHARED)
