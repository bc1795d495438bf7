"""Settings of the contiguous baselines: one unbroken piece of KV memory a request (PagedAttention, SOSP'23, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

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
class ContiguousSettings(Settings):
    """Settings of one replica. Names shared with vLLM mean the same, so that the same pool can be given to both."""

    engine: str = setting("contiguous", "engine whose decisions are replayed", choices=("contiguous",))
    engine_version: str = setting("sosp23", "the baselines as the PagedAttention paper describes them", choices=("sosp23",))
    reservation: str = setting(
        "max",
        "piece reserved at admission: max_model_len, prompt plus the output's next power of two, or the true length",
        choices=("max", "pow2", "oracle"),
    )
    allocator: str = setting(
        "buddy", "where a piece lies: buddy (rounded to a power of two) or first-fit by address", choices=("buddy", "first_fit")
    )
    batching: str = setting(
        "continuous",
        "continuous: requests join and leave at every step (Orca); static: one batch after the other",
        choices=("continuous", "static"),
    )
    preemption_mode: str = setting("none", "swap: a running request can be moved to host memory as a whole", choices=("none", "swap"))
    swap_space_gib: float = setting(4.0, "host memory for swapped requests, GiB per GPU", min=0.0, max=1e6)
    swap_patience_s: float = setting(
        1.0, "seconds (steps in step mode) a request waits for memory before it may push another out", min=0.0, max=1e9
    )
    swap_gb_s: float | None = setting(
        None, "bytes per second and direction between GPU and host, in 10^9; default: what the GPU's bus reaches", min=1e-6, max=1e5
    )
    block_size: int = setting(16, "tokens per cell, the grain of the memory", min=1, max=65536)
    num_gpu_blocks: int | None = setting(
        None, "cells in the pool, the null cell included; computed from model and GPU if not given", min=2, max=1 << 30
    )
    gpu_memory_utilization: float | None = setting(
        None, "share of GPU memory the engine may use; default as for vLLM's newest profile", min=0.01, max=1.0
    )
    model: str = model_setting()
    gpu: str = gpu_setting()
    tensor_parallel_size: int = tensor_parallel_setting()
    kv_cache_dtype: str = kv_cache_dtype_setting()
    max_num_seqs: int | None = setting(None, "requests that may run at once; default as for vLLM on this GPU", min=1, max=65536)
    max_model_len: int | None = setting(
        None, "longest prompt plus output; default: the longest request of the workload", min=1, max=1 << 24
    )

    def check(self) -> None:
        """Swapping needs steps that requests can leave."""
        if self.preemption_mode == "swap" and self.batching == "static":
            hint = "A static batch keeps its members to the end; use batching=continuous"
            raise SettingsError("preemption_mode", "swap", "none with batching=static", hint)
