"""vLLM as one of the engines (simkv/engine/engines.py)."""

from __future__ import annotations

from simkv.engine.resolve import Resolved, resolve
from simkv.engine.vllm.engine import VllmEngine as make
from simkv.engine.vllm.kv_events import writes_kv_events
from simkv.engine.vllm.layout import BLOCK, QUEUE, REQUEST

__all__ = ["bytes_needed", "make", "resolve", "writes_kv_events"]

BYTES_OF_TABLE = 32
"""Of the table of keys, per block, at most: 8 bytes an entry, 2 entries a block, rounded up to a power of two."""


def bytes_needed(s: Resolved, requests: int) -> tuple[int, int]:
    """Bytes per block of the pool, and bytes for the requests."""
    strides = [(g.block_size or s.block_size) // s.hash_block_size for g in s.groups if g.type == "full"]
    per_block = max(strides, default=1) * (BLOCK.itemsize + BYTES_OF_TABLE)
    return per_block, requests * (REQUEST.itemsize + 2 * QUEUE.itemsize)
