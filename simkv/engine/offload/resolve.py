"""The host tier a replay has: sizes and rules as vLLM 0.32 derives them at start-up, and what is not modelled."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.errors import SettingsError
from simkv.hardware.gpus import find_gpu
from simkv.hardware.host_size import host_size
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.models import find_model
from simkv.hardware.tables import GIB
from simkv.hardware.transfer import host_link
from simkv.settings import EngineSettings

SIMPLE_DEFAULT_GIB = 8.0
MODELLED = "0.32"


@dataclass(frozen=True, slots=True)
class Offload:
    """A host tier with nothing left open.

    Args:
        connector: ``native`` or ``simple``.
        chunks: capacity in chunks; simple: blocks of its pool, the null block included.
        blocks_per_chunk: device blocks that share a key in the host tier.
        store_latency, load_latency: steps a copy takes where a workload counts steps.
        job_s: seconds of each copy besides its bytes.
        block_s: seconds to copy one block, either direction.
    """

    connector: str
    chunks: int
    blocks_per_chunk: int
    policy: str
    store_threshold: int
    max_tracker_size: int
    prompt_only: bool
    self_describing: bool
    lazy: bool
    store_latency: int
    load_latency: int
    job_s: float
    block_s: float


def resolve_offload(s: EngineSettings, version: str, notes: list[str]) -> Offload | None:
    """The host tier of these settings, ``None`` if they have none.

    Args:
        version: release line whose rules are replayed.
        notes: what was derived is added here, a sentence each.

    Raises:
        SettingsError: what this version does not model, or vLLM would refuse.
    """
    if not s.has_host_tier:
        return None
    _refuse(s, version)
    simple = s.kv_offload_connector == "simple"
    if simple and not s.enable_prefix_caching:
        notes.append("vLLM's simple host tier does nothing while prefix caching is off.")
        return None
    per_chunk = 1 if simple else _blocks_per_chunk(s)
    chunks = s.kv_offload_num_chunks
    if chunks is None:
        gib = s.kv_offload_cpu_bytes_to_use / GIB if s.kv_offload_cpu_bytes_to_use is not None else s.kv_offloading_size
        size = host_size(s, gib or SIMPLE_DEFAULT_GIB, per_chunk)
        chunks = size.simple_blocks if simple else size.native_chunks
        notes += [size.sentence, *size.assumptions]
    if chunks < (2 if simple else 1):
        raise SettingsError("kv_offloading_size", s.kv_offloading_size, "room for at least one chunk", "Give the host tier more memory")
    job_s, block_s = _seconds(s)
    return Offload(
        connector=s.kv_offload_connector,
        chunks=chunks,
        blocks_per_chunk=per_chunk,
        policy=s.kv_offload_eviction_policy,
        store_threshold=s.kv_offload_store_threshold,
        max_tracker_size=s.kv_offload_max_tracker_size,
        prompt_only=s.kv_offload_prompt_only,
        self_describing=s.kv_offload_self_describing_kv_events,
        lazy=simple and s.kv_offload_lazy,
        store_latency=s.kv_offload_store_latency,
        load_latency=s.kv_offload_load_latency,
        job_s=job_s,
        block_s=block_s,
    )


def _refuse(s: EngineSettings, version: str) -> None:
    if s.kv_offloading_backend == "lmcache":
        raise SettingsError("kv_offloading_backend", "lmcache", "native", "LMCache decides in its own process; it is not modelled")
    if version != MODELLED:
        hint = "Leave kv_offloading_size out, or choose engine_version=0.32"
        raise SettingsError("engine_version", version, f"{MODELLED}: the host tier of other releases was not examined", hint)
    if len(s.groups) > 1 or s.groups[0].type != "full":
        raise SettingsError("kv_offloading_size", s.kv_offloading_size, "a model with one full-attention group", "Leave out hybrid groups")


def _blocks_per_chunk(s: EngineSettings) -> int:
    tokens, blocks = s.kv_offload_block_size, s.kv_offload_blocks_per_chunk
    if tokens is None:
        return blocks or 1
    if blocks is not None:
        raise SettingsError("kv_offload_block_size", tokens, "not together with kv_offload_blocks_per_chunk", "Give one of them")
    if tokens % s.block_size:
        raise SettingsError("kv_offload_block_size", tokens, f"a multiple of block_size={s.block_size}")
    return tokens // s.block_size


def _seconds(s: EngineSettings) -> tuple[float, float]:
    """Seconds of a copy besides its bytes, and seconds per block: every GPU moves its own part at the same time."""
    link = host_link(find_gpu(s.gpu), s.kv_offload_bandwidth)
    block_bytes = kv_bytes_per_token(find_model(s.model), s.kv_cache_dtype, s.tensor_parallel_size) * s.block_size
    return link.job_s, block_bytes / link.bandwidth
