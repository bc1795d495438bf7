"""The contiguous baselines as one of the engines (simkv/engine/engines.py)."""

from __future__ import annotations

from simkv.engine.contiguous.engine import ContiguousEngine as make
from simkv.engine.contiguous.layout import CELL, QUEUE, REQUEST
from simkv.engine.contiguous.resolve import Resolved, resolve

__all__ = ["bytes_needed", "make", "resolve"]


def bytes_needed(s: Resolved, requests: int) -> tuple[int, int]:
    """Bytes per cell of the pool, and bytes for the requests."""
    return CELL.itemsize, requests * (REQUEST.itemsize + 2 * QUEUE.itemsize)
