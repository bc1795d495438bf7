"""From GPU, model and settings to the tokens of SGLang's KV pool (0.5.23: arg_groups/memory_hook.py, kv_cache_configurator.py)."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.errors import SettingsError
from simkv.hardware.gpus import Gpu, find_gpu
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.memory import overhead
from simkv.hardware.models import find_model
from simkv.hardware.tables import GIB, MIB, gb_and_gib
from simkv.settings import SglangSettings

METADATA_MIB = 512
MIB_PER_TOKEN = 1.5
PARALLEL_MIB = 1024 / 8
DECODE_GRAPH_MIB, PREFILL_GRAPH_MIB = 2, 8
FLOOR_MIB, FLOOR_FROM_MIB = 10 * 1024, 60 * 1024
MLA_PREFILL_GRAPHS_MIB = 1536
GIB_STEPS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (90, 8192, 256, 512), (160, 8192, 256, 512))
"""GPU memory below so many GiB: chunked_prefill_size, largest decode graph below 4 GPUs, and from 4 GPUs on."""
LARGEST = (16384, 512, 512)
CAPTURED_TOKENS = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
    *range(4608, 1 << 15, 512),
)
"""Prefill sizes for which SGLang captures a graph, up to the chunk."""


@dataclass(frozen=True, slots=True)
class SglangCapacity:
    """The KV pool of one replica. Bytes are per GPU.

    Args:
        total_bytes: GPU memory as torch sees it.
        mem_fraction_static: share of it for weights and KV pool.
        bytes_per_token: KV bytes per token over all layers on one GPU.
        num_gpu_blocks: pages of the pool, the padding page included.
        kv_tokens: tokens of the pool, whole pages.
    """

    model: str
    gpu: str
    tensor_parallel_size: int
    mem_fraction_static: float
    total_bytes: int
    slack_bytes: int
    weight_bytes: int
    other_bytes: int
    available_kv_bytes: int
    bytes_per_token: int
    num_gpu_blocks: int
    kv_tokens: int
    assumptions: tuple[str, ...]

    @property
    def waterfall(self) -> tuple[tuple[str, int], ...]:
        """(what, bytes) from the whole GPU down to the KV pool. The parts after the first add up to the first."""
        return (
            ("GPU memory", self.total_bytes),
            ("activations and graphs (1 - mem_fraction_static)", self.slack_bytes),
            ("weights", self.weight_bytes),
            ("outside torch", self.other_bytes),
            ("KV pool", self.available_kv_bytes),
        )


def _by_memory(gpu: Gpu) -> tuple[int, int, int]:
    gib = gpu.driver_bytes / GIB
    return next((rest for below, *rest in GIB_STEPS if gib < below), LARGEST)  # type: ignore[return-value]


def chunked_prefill_size(gpu: Gpu) -> int:
    """SGLang's default by GPU memory (as nvidia-smi shows it)."""
    return _by_memory(gpu)[0]


def mem_fraction_static(gpu: Gpu, tp: int, chunk: int, max_prefill_tokens: int, mla: bool = False) -> float:
    """SGLang's default: what is left after a reserve for activations, CUDA graphs and several GPUs, to three digits."""
    total = gpu.driver_bytes / MIB
    reserve = METADATA_MIB + MIB_PER_TOKEN * max(chunk if chunk > 0 else max_prefill_tokens, 2048) + tp * PARALLEL_MIB
    reserve += DECODE_GRAPH_MIB * _by_memory(gpu)[1 if tp < 4 else 2]
    reserve += MLA_PREFILL_GRAPHS_MIB if mla else PREFILL_GRAPH_MIB * sum(n <= chunk for n in CAPTURED_TOKENS)
    if total > FLOOR_FROM_MIB:
        reserve = max(reserve, FLOOR_MIB)
    return round((total - reserve) / total, 3)


def sglang_capacity(s: SglangSettings) -> SglangCapacity:
    """The pool a server with these settings would have; ``max_total_tokens`` is not looked at.

    Raises:
        SettingsError: unknown model or GPU, a tensor_parallel_size the model does not allow, or no memory left.
    """
    model, gpu, tp = find_model(s.model), find_gpu(s.gpu), s.tensor_parallel_size
    chunk = s.chunked_prefill_size or chunked_prefill_size(gpu)
    fraction = s.mem_fraction_static
    if fraction is None:
        fraction = mem_fraction_static(gpu, tp, chunk, s.max_prefill_tokens, model.mla)
    rest = overhead(model, tp, batch_tokens=0, max_num_seqs=0, cuda_graphs=False)
    per_token = kv_bytes_per_token(model, s.kv_cache_dtype, tp)
    slack = int(gpu.total_bytes * (1 - fraction))
    other = rest.non_torch
    available = gpu.total_bytes - slack - rest.weights - other
    pages = available // (per_token * s.page_size)
    if pages < 1:
        allowed = f"a model that leaves room for a KV pool in {gb_and_gib(gpu.total_bytes)} of {gpu.name}"
        raise SettingsError("model", model.name, allowed, "Use more GPUs, a GPU with more memory, or a smaller model")
    said = (
        f"mem_fraction_static={fraction:g} is {'given' if s.mem_fraction_static is not None else 'the default for this GPU'}; the rest of"
        f" {gb_and_gib(gpu.total_bytes)} (as torch reports it, the lower end of what was seen) is for activations and CUDA graphs.",
        rest.assumptions[0],
        f"Memory outside torch before the pool is made is taken as {gb_and_gib(other)}.",
    )
    return SglangCapacity(
        model=model.name,
        gpu=gpu.name,
        tensor_parallel_size=tp,
        mem_fraction_static=fraction,
        total_bytes=gpu.total_bytes,
        slack_bytes=slack,
        weight_bytes=rest.weights,
        other_bytes=other,
        available_kv_bytes=available,
        bytes_per_token=per_token,
        num_gpu_blocks=pages + 1,
        kv_tokens=pages * s.page_size,
        assumptions=said,
    )
