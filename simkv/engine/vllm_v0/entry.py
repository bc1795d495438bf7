"""What the table of engines asks of this one (simkv/engine/engines.py)."""

from __future__ import annotations

from simkv.engine.vllm_v0.engine import V0Engine as make
from simkv.engine.vllm_v0.resolve import resolve
from simkv.engine.vllm_v0.state import bytes_needed

__all__ = ["bytes_needed", "make", "resolve"]
