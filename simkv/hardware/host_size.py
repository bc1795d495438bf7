"""What a host tier of so many GiB holds of a model's KV."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simkv.errors import SettingsError
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.models import FULL, find_model
from simkv.hardware.tables import GIB, gb_and_gib
from simkv.hardware.transfer import native_chunk_bytes, one_copy_in_host, simple_blocks
from simkv.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class HostSize:
    """Sizes of both connectors' tiers.

    Args:
        host_bytes: memory over all GPUs of the replica.
        chunk_bytes: what one chunk of the native tier takes of it, padding included.
        native_chunks: chunks of the native tier.
        native_tokens: tokens they hold.
        simple_blocks: blocks of the simple connector's pool, its null block included.
        simple_tokens: tokens the others hold.
        assumptions: one sentence for each thing that is not as the engine counts.
    """

    host_bytes: int
    chunk_bytes: int
    native_chunks: int
    native_tokens: int
    simple_blocks: int
    simple_tokens: int
    assumptions: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The sizes in words."""
        return (
            f"{gb_and_gib(self.host_bytes)} of host memory hold {self.native_tokens:,} tokens in {self.native_chunks:,} chunks"
            f" (native), {self.simple_tokens:,} tokens in {self.simple_blocks - 1:,} blocks (simple connector)."
        )


def host_size(settings: EngineSettings, gib: float, blocks_per_chunk: int = 1) -> HostSize:
    """What both connectors make of ``gib`` GiB (``kv_offloading_size``: the sum over all GPUs of the replica).

    Raises:
        SettingsError: unknown model, or a size or a chunk that is no positive number.
    """
    if not (math.isfinite(gib) and gib > 0):
        raise SettingsError("host size", gib, "GiB, more than 0")
    if blocks_per_chunk < 1:
        raise SettingsError("blocks_per_chunk", blocks_per_chunk, "a whole number of at least 1")
    model, tp, size = find_model(settings.model), settings.tensor_parallel_size, settings.block_size
    host_bytes = int(gib * GIB)
    block_bytes = kv_bytes_per_token(model, settings.kv_cache_dtype, tp) * size
    one_copy = one_copy_in_host(model, tp)
    chunk_bytes = native_chunk_bytes(block_bytes, tp, blocks_per_chunk, one_copy=one_copy)
    chunks = host_bytes // chunk_bytes
    blocks = simple_blocks(host_bytes, block_bytes, tp)
    said = []
    if one_copy:
        said.append(f"The native tier keeps {model.name}'s latent vectors once, although each of the {tp} GPUs holds them.")
    if model.hybrid and model.layers_of(FULL) < model.kv_layers:
        said.append(f"All {model.kv_layers} KV layers of {model.name} are counted for every token; layers with a window need less.")
    return HostSize(
        host_bytes,
        chunk_bytes,
        chunks,
        chunks * blocks_per_chunk * size,
        blocks,
        (blocks - 1) * size,
        tuple(said),
    )
