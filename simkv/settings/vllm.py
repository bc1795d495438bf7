"""vLLM's settings, under vLLM's names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simkv.errors import SettingsError
from simkv.settings.base import (
    Settings,
    gpu_setting,
    kv_cache_dtype_setting,
    model_setting,
    setting,
    tensor_parallel_setting,
)


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One KV cache group of a model: layers that share a block table.

    Args:
        type: ``full`` or ``sliding``.
        window: tokens a sliding layer attends to, the current one included.
        block_size: tokens per block; ``None`` takes the engine's ``block_size``.
        layers: how many layers (for memory only; decisions do not depend on it).
    """

    type: str = "full"
    window: int | None = None
    block_size: int | None = None
    layers: int = 1

    def __post_init__(self) -> None:
        if self.type not in ("full", "sliding"):
            raise SettingsError("hybrid.type", self.type, "full or sliding")
        if self.type == "sliding" and not (isinstance(self.window, int) and self.window >= 1):
            raise SettingsError("hybrid.window", self.window, "a whole number of at least 1 for a sliding group")
        if self.block_size is not None and self.block_size < 1:
            raise SettingsError("hybrid.block_size", self.block_size, "a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class EngineSettings(Settings):
    """Settings of one vLLM replica. ``None`` means the engine's own default for the model, GPU and workload.

    Defaults are vLLM 0.32.0's (vllm/config/*.py); older versions are profiles (``engine_version``).
    """

    engine: str = setting("vllm", "engine whose decisions are replayed", choices=("vllm",))
    engine_version: str = setting("0.32", "behaviour of this engine release (see `simkv profiles`)")
    block_size: int = setting(16, "tokens per KV block", min=1, max=65536)
    num_gpu_blocks: int | None = setting(
        None, "KV blocks in the pool, the null block included; computed from model and GPU if not given", min=2, max=1 << 30
    )
    gpu_memory_utilization: float | None = setting(None, "share of GPU memory the engine may use (0.92 since vLLM 0.20)", min=0.01, max=1.0)
    model: str = model_setting()
    gpu: str = gpu_setting()
    tensor_parallel_size: int = tensor_parallel_setting()
    kv_cache_dtype: str = kv_cache_dtype_setting()
    max_num_seqs: int | None = setting(None, "requests that may run at once; vLLM's default depends on the GPU", min=1, max=65536)
    max_num_active_seqs: int | None = setting(None, "a lower limit on running requests, if given", min=1, max=65536)
    max_num_batched_tokens: int | None = setting(None, "token budget of one step; vLLM's default depends on the GPU", min=1, max=1 << 24)
    max_model_len: int | None = setting(
        None, "longest prompt plus output; default: the longest request of the workload", min=1, max=1 << 24
    )
    enable_prefix_caching: bool = setting(True, "automatic prefix caching")
    enable_chunked_prefill: bool = setting(True, "a prompt may be computed over several steps")
    long_prefill_token_threshold: int = setting(
        0, "most prefill tokens of one request per step while others exist (0 = off)", min=0, max=1 << 24
    )
    watermark: float = setting(0.0, "share of blocks kept free at admission", min=0.0, max=1.0)
    scheduler_reserve_full_isl: bool | None = setting(None, "admit only if the whole prompt fits (default on since vLLM 0.20)")
    async_scheduling: bool | None = setting(
        None, "schedule the next step before this one's output is processed (default on since vLLM 0.16)"
    )
    policy: str = setting("fcfs", "order of the waiting queue", choices=("fcfs", "priority"))
    max_loras: int | None = setting(None, "adapters that may run at once; not given: no limit is modelled", min=1, max=4096)
    sliding_window: int | None = setting(None, "the model's only KV group is a sliding window of this many tokens", min=1, max=1 << 24)
    hybrid: tuple[KVGroup, ...] = setting((), "KV groups of a hybrid model")
    prefix_cache_retention_interval: int | None = setting(
        0, "which blocks sliding groups keep: 0 replay boundaries, null all, else every so many tokens"
    )
    kv_offloading_size: float | None = setting(None, "GiB of host memory for KV, over all GPUs of the replica", min=0.0, max=1e6)
    kv_offloading_backend: str = setting("native", "who moves KV to host memory; lmcache is not modelled", choices=("native", "lmcache"))
    kv_offload_connector: str = setting(
        "native", "OffloadingConnector, or SimpleCPUOffloadConnector (VLLM_USE_SIMPLE_KV_OFFLOAD=1)", choices=("native", "simple")
    )
    kv_offload_cpu_bytes_to_use: int | None = setting(None, "the same in bytes, as the connector's extra config has it", min=1, max=1 << 50)
    kv_offload_num_chunks: int | None = setting(
        None, "chunks of the host tier (simple: blocks, the null block included), instead of its bytes", min=1, max=1 << 30
    )
    kv_offload_block_size: int | None = setting(None, "tokens per chunk (native): whole blocks", min=1, max=1 << 24)
    kv_offload_blocks_per_chunk: int | None = setting(None, "blocks per chunk (native; default 1)", min=1, max=65536)
    kv_offload_eviction_policy: str = setting("lru", "which chunk leaves the host tier (native)", choices=("lru", "arc"))
    kv_offload_store_threshold: int = setting(0, "offers from which a chunk is stored (native; 0 and 1: at once)", min=0, max=1 << 30)
    kv_offload_max_tracker_size: int = setting(64_000, "keys whose offers are counted (native)", min=1, max=1 << 30)
    kv_offload_prompt_only: bool = setting(True, "only prompts are stored, not generated tokens (native: offload_prompt_only)")
    kv_offload_self_describing_kv_events: bool = setting(False, "the host tier's KV events name tokens and parents (native)")
    kv_offload_lazy: bool = setting(False, "store blocks only when they are about to be evicted (simple: lazy_offload)")
    kv_offload_store_latency: int = setting(1, "steps a store takes where the workload counts steps", min=0, max=1 << 20)
    kv_offload_load_latency: int = setting(1, "steps a load takes where the workload counts steps", min=0, max=1 << 20)
    kv_offload_bandwidth: float | None = setting(
        None, "bytes per second between a GPU and host memory, in each direction; default: the GPU's PCIe", min=1.0, max=1e15
    )
    prefix_caching_hash_algo: str = setting("sha256", "digest in exported KV events", choices=("sha256", "sha256_cbor"))

    def check(self) -> None:
        """What vLLM refuses of combinations."""
        if self.hybrid and self.sliding_window:
            raise SettingsError(
                "sliding_window", self.sliding_window, "not together with hybrid", "Describe the window as a group of hybrid"
            )
        if len(self.hybrid) > 8:
            raise SettingsError("hybrid", f"{len(self.hybrid)} groups", "at most 8 groups")
        r, sb = self.prefix_cache_retention_interval, self.scheduler_block_size
        sliding = any(g.type == "sliding" for g in self.groups)
        if r not in (None, 0) and not (sliding and r > 0 and r % sb == 0):
            allowed = f"0, null or a multiple of {sb} (lcm of the groups' block sizes)" if sliding else "0 or null without a sliding group"
            raise SettingsError("prefix_cache_retention_interval", r, allowed)

    @property
    def tokens_per_block(self) -> int:
        """Tokens per block."""
        return self.block_size

    @property
    def has_host_tier(self) -> bool:
        """Whether any setting gives the replica host memory for KV."""
        sizes = (self.kv_offloading_size, self.kv_offload_cpu_bytes_to_use, self.kv_offload_num_chunks)
        return any(size is not None for size in sizes)

    @property
    def compiled_as(self) -> str:
        """vLLM without a host tier and with each connector are compiled apart: most users need only the first."""
        return f"vllm+{self.kv_offload_connector}" if self.has_host_tier else "vllm"

    def with_pool(self, blocks: int) -> EngineSettings:
        """A copy with prefix caching on and so many blocks, the null block included."""
        return self.replace(num_gpu_blocks=blocks, enable_prefix_caching=True)

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """The KV groups with their block sizes filled in."""
        given = self.hybrid or ((KVGroup("sliding", self.sliding_window),) if self.sliding_window else (KVGroup(),))
        return tuple(dataclasses.replace(g, block_size=g.block_size or self.block_size) for g in given)

    @property
    def hash_block_size(self) -> int:
        """Tokens per hashed block: gcd over the groups (vllm/v1/core/kv_cache_utils.py, resolve_kv_cache_block_sizes)."""
        return math.gcd(*(g.block_size or 1 for g in self.groups))

    @property
    def scheduler_block_size(self) -> int:
        """Granularity of hits: lcm over the groups."""
        return math.lcm(*(g.block_size or 1 for g in self.groups))

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """``hybrid`` may be a list of mappings, or "model": the groups of the model."""
        if values.get("hybrid") == "model":
            from simkv.hardware.kv_bytes import groups_of

            values["hybrid"] = groups_of(values.get("model", cls().model))
        if isinstance(values.get("hybrid"), (list, tuple)):
            values["hybrid"] = tuple(g if isinstance(g, KVGroup) else _group(g) for g in values["hybrid"])
        return values

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, ready for JSON or TOML."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out["hybrid"] = [dataclasses.asdict(g) for g in self.hybrid]
        return out


def _group(given: Any) -> KVGroup:
    names = [f.name for f in dataclasses.fields(KVGroup)]
    if not isinstance(given, Mapping) or not given.keys() <= set(names):
        raise SettingsError("hybrid", given, "a list of groups with " + ", ".join(names), 'For example [{type="sliding", window=1024}]')
    for name in ("block_size", "layers"):
        if given.get(name) is not None and type(given[name]) is not int:
            raise SettingsError(f"hybrid.{name}", given[name], "a whole number of at least 1")
    return KVGroup(**given)
