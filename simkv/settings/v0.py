"""Settings of vLLM's first generation ("V0"), under its own names (vllm/engine/arg_utils.py and sampling_params.py, 0.2.7)."""

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

MOST_SEQUENCES = 8
"""Sequences of one request that the event log tells apart (simkv/events/layout.py, MAX_GROUPS)."""


@dataclass(frozen=True, slots=True)
class V0Settings(Settings):
    """Settings of one vLLM V0 replica. ``None`` means the engine's own default for the model, GPU and workload.

    ``n``, ``best_of`` and ``use_beam_search`` are sampling parameters in vLLM; here they hold for every request of the run.
    ``beam_resampling``, ``beam_seed`` and ``swap_bandwidth`` stand for a model and a machine; V0 has no such settings. Which
    beams survive depends on the model; ``beam_resampling`` is a free parameter in its place. No single value meets both of
    the PagedAttention paper's data sets (`simkv sharing`): ShareGPT is met near 0.02, Alpaca near 0.1.
    """

    engine: str = setting("vllm-v0", "engine whose decisions are replayed", choices=("vllm-v0",))
    engine_version: str = setting("0.2.7", "behaviour of this engine release", choices=("0.2.7",))
    block_size: int = setting(16, "tokens per KV block", min=1, max=65536)
    num_gpu_blocks: int | None = setting(
        None, "KV blocks in GPU memory (V0 has no null block); computed from model and GPU if not given", min=1, max=(1 << 30) - 1
    )
    num_cpu_blocks: int | None = setting(
        None, "KV blocks in host memory to swap to; computed from swap_space if not given", min=0, max=1 << 30
    )
    swap_space: float = setting(4.0, "GiB of host memory per GPU to swap to", min=0.0, max=65536.0)
    gpu_memory_utilization: float = setting(0.9, "share of GPU memory the engine may use", min=0.01, max=1.0)
    model: str = model_setting()
    gpu: str = gpu_setting()
    tensor_parallel_size: int = tensor_parallel_setting()
    kv_cache_dtype: str = kv_cache_dtype_setting()
    max_num_seqs: int = setting(256, "sequences that may run at once; a request counts with its best_of", min=1, max=65536)
    max_num_batched_tokens: int | None = setting(
        None, "tokens of one prompt step, padding included; default: the larger of max_model_len and 2048", min=1, max=1 << 24
    )
    max_paddings: int = setting(256, "most padding tokens in one prompt step", min=0, max=1 << 24)
    max_model_len: int | None = setting(None, "longest sequence; default: the longest request of the workload", min=1, max=1 << 24)
    preemption_mode: str | None = setting(
        None, "what becomes of a preempted request; V0 itself recomputes one sequence and swaps several", choices=("recompute", "swap")
    )
    n: int = setting(1, "sequences returned for every request", min=1, max=MOST_SEQUENCES)
    best_of: int | None = setting(None, "sequences generated for every request (parallel sampling, beam width); default n", min=1, max=8)
    use_beam_search: bool = setting(False, "the sequences of a request are beams, not independent samples")
    beam_resampling: float = setting(
        0.05, "chance that a beam candidate descends from a beam drawn at random instead of its own", min=0.0, max=1.0
    )
    beam_seed: int = setting(0, "seed of those draws", min=0, max=(1 << 53) - 1)
    swap_bandwidth: float | None = setting(
        None,
        "bytes per second between one GPU and host memory, each direction; default: what copies reach on the GPU's PCIe",
        min=1e3,
        max=1e15,
    )

    @property
    def width(self) -> int:
        """Sequences generated for every request."""
        return self.best_of if self.best_of is not None else self.n

    def check(self) -> None:
        """What V0 refuses of combinations."""
        if self.best_of is not None and self.best_of < self.n:
            raise SettingsError("best_of", self.best_of, f"at least n={self.n}")
        if self.use_beam_search and self.width < 2:
            raise SettingsError("best_of", self.width, "at least 2 with use_beam_search")
        if self.width > self.max_num_seqs:
            raise SettingsError("max_num_seqs", self.max_num_seqs, f"at least best_of={self.width}", "Else no request could ever run")
        if self.preemption_mode == "recompute" and self.width > 1:
            raise SettingsError("preemption_mode", "recompute", "swap", "V0 cannot recompute a request with several sequences")
