"""``entry``, ``splice``, ``kernel`` and ``inline`` for this package (see simkv/jit.py)."""

from pathlib import Path

from simkv import jit

_HERE = Path(__file__).parent
_ENGINE = _HERE.parent
_VLLM = _ENGINE / "vllm"
_SHARED = [_VLLM / name for name in ("keys.py", "pool.py", "queue.py", "scheduler.py", "stretch.py")]
entry, splice, kernel, inline = jit.decorators(
    _HERE, _ENGINE / "step_time_layout.py", _ENGINE / "contract.py", _ENGINE.parent / "events" / "layout.py", *_SHARED
)
