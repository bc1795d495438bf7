"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py)."""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
_ENGINE = _HERE.parent
_BORROWED = [_ENGINE / "vllm" / name for name in ("loop.py", "room.py", "pool.py", "queue.py", "output.py", "scheduler.py", "layout.py")]
entry, splice, kernel, inline = jit.decorators(
    _HERE, *_BORROWED, _ENGINE / "step_time_layout.py", _ENGINE / "contract.py", _ENGINE.parent / "events" / "layout.py"
)
