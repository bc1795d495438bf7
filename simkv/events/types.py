"""The content layer of the event log as typed objects, under vLLM's own names (vllm/distributed/kv_events.py).

Only edges use them (export, live streams): the log itself is columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

ExtraKey: TypeAlias = str | tuple[str, int]
"""What else went into a block's hash, as published: LoRA name, (image identifier, offset in the block), cache salt."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Full blocks that entered the prefix cache.

    Args:
        block_hashes: one digest per block; several entries continue each other.
        parent_block_hash: digest of the block before the first one; ``None`` at the start of a prompt.
        token_ids: the tokens of the blocks (in sliding groups also those of blocks not worth keeping).
        block_size: tokens per block.
        lora_name: the adapter, if any.
        extra_keys: one entry per block, ``None`` where nothing but tokens was hashed.
        group_idx: KV cache group.
        medium: where the block lies.
    """

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None
    token_ids: tuple[int, ...]
    block_size: int
    lora_name: str | None = None
    extra_keys: tuple[tuple[ExtraKey, ...] | None, ...] | None = None
    group_idx: int = 0
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Keys that left the prefix cache. Another block may still hold the same key: count, do not discard."""

    block_hashes: tuple[bytes, ...]
    group_idx: int = 0
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """``reset_prefix_cache`` succeeded: every key is gone."""


KVEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
