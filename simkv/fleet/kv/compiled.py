"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py).

What is called for every request is given plain arrays one by one, and puts its tuples together inside (see
simkv/fleet/routing/compiled.py).
"""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
_ENGINE = _HERE.parent.parent / "engine"
entry, splice, kernel, inline = jit.decorators(
    _HERE,
    *(_ENGINE / "vllm" / name for name in ("keys.py", "kv_events.py", "layout.py", "lookup.py", "pool.py")),
    *(_ENGINE / "sglang" / name for name in ("content.py", "layout.py", "links.py")),
    _ENGINE / "contract.py",
    _ENGINE.parent / "events" / "layout.py",
)
