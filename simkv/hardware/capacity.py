"""From GPU, model and settings to the number of KV blocks: the sum vLLM does at start-up (vllm/v1/worker/gpu_worker.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simkv.engine.profiles import profile
from simkv.errors import SettingsError
from simkv.hardware.batch_defaults import batch_defaults
from simkv.hardware.gpus import Gpu, find_gpu
from simkv.hardware.kv_bytes import blocks_for, kv_bytes_per_token, layer_bytes_per_token
from simkv.hardware.memory import Overhead, overhead
from simkv.hardware.models import CHUNKED, LINEAR, Model, find_model
from simkv.hardware.tables import gb_and_gib
from simkv.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Capacity:
    """The pool of one replica. Bytes are per GPU; every GPU of a tensor-parallel replica holds the same number of blocks.

    Args:
        total_bytes: GPU memory as torch sees it.
        requested_bytes: ceil(total x gpu_memory_utilization).
        available_kv_bytes: what is left for the KV cache; exact if it was given, else an estimate.
        bytes_per_token: KV bytes per token over all layers on one GPU.
        bytes_per_block: bytes one block takes on one GPU, over the layers that share it.
        num_gpu_blocks: blocks of the pool, the null block included, as the engine's log counts them.
        kv_tokens: the log's "GPU KV cache size"; with one group blocks x block size.
        max_concurrency: requests of ``max_model_len`` tokens that fit at once; ``None`` if that length is not known.
        assumptions: one sentence for each figure that is not exact.
    """

    model: str
    gpu: str
    tensor_parallel_size: int
    kv_cache_dtype: str
    gpu_memory_utilization: float
    block_size: int
    max_model_len: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    total_bytes: int
    requested_bytes: int
    weight_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    available_kv_bytes: int
    bytes_per_token: int
    bytes_per_block: int
    num_gpu_blocks: int
    kv_tokens: int
    max_concurrency: float | None
    assumptions: tuple[str, ...]

    @property
    def waterfall(self) -> tuple[tuple[str, int], ...]:
        """(what, bytes) from the whole GPU down to the KV cache. The parts after the first add up to the first."""
        return (
            ("GPU memory", self.total_bytes),
            ("left to others (1 - utilization)", self.total_bytes - self.requested_bytes),
            ("weights", self.weight_bytes),
            ("activations and logits", self.activation_bytes),
            ("outside torch", self.non_torch_bytes),
            ("CUDA graphs", self.cuda_graph_bytes),
            ("KV cache", self.available_kv_bytes),
        )


def capacity(settings: EngineSettings, *, max_model_len: int | None = None, available_kv_bytes: int | None = None) -> Capacity:
    """The pool an engine with these settings would have; ``settings.num_gpu_blocks`` is not looked at.

    Args:
        max_model_len: used where the settings name none (the longest request of the workload).
        available_kv_bytes: bytes for the KV cache on the GPU with the least, where they are known: from a start-up log
            or from ``--kv-cache-memory-bytes``. The estimate of everything else is then not used.

    Raises:
        SettingsError: unknown model or GPU, a tensor_parallel_size the model does not allow, or no memory left for two
            blocks; the message says what to change.
    """
    model, gpu, p = find_model(settings.model), find_gpu(settings.gpu), profile(settings.engine_version)
    tp, chunked = settings.tensor_parallel_size, settings.enable_chunked_prefill
    mml = settings.max_model_len or max_model_len
    budget, seqs = batch_defaults(gpu, mml, chunked, settings.max_num_seqs, settings.max_num_batched_tokens)
    utilization = settings.gpu_memory_utilization if settings.gpu_memory_utilization is not None else p.gpu_memory_utilization
    requested = math.ceil(gpu.total_bytes * utilization)
    rest = overhead(model, tp, batch_tokens=budget, max_num_seqs=seqs, cuda_graphs=p.cuda_graphs_reserved)
    per_token = kv_bytes_per_token(model, settings.kv_cache_dtype, tp)
    per_block, said = _block_bytes(settings, model)
    if available_kv_bytes is None:
        available = requested - rest.total
        said = [_memory_sentence(gpu), *rest.assumptions, *said]
    else:
        available = available_kv_bytes
        said = ["The memory for the KV cache was given, not estimated.", *said]
    if available < 2 * per_block:
        raise _no_room(settings, model, gpu, requested, rest, available)
    blocks = available // per_block
    groups = settings.groups
    concurrency = None
    tokens = blocks * min(g.block_size or 1 for g in groups) // len(groups)
    if mml is not None:
        is_async = settings.async_scheduling if settings.async_scheduling is not None else p.async_default
        concurrency = blocks / blocks_for(groups, mml, budget * (2 if is_async else 1))
        if len(groups) > 1 or groups[0].type != "full":
            tokens = int(concurrency * mml)
    return Capacity(
        model=model.name,
        gpu=gpu.name,
        tensor_parallel_size=tp,
        kv_cache_dtype=settings.kv_cache_dtype,
        gpu_memory_utilization=utilization,
        block_size=settings.block_size,
        max_model_len=mml,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        total_bytes=gpu.total_bytes,
        requested_bytes=requested,
        weight_bytes=rest.weights,
        activation_bytes=rest.activations,
        non_torch_bytes=rest.non_torch,
        cuda_graph_bytes=rest.cuda_graphs,
        available_kv_bytes=available,
        bytes_per_token=per_token,
        bytes_per_block=per_block,
        num_gpu_blocks=blocks,
        kv_tokens=tokens,
        max_concurrency=concurrency,
        assumptions=tuple(said),
    )


def num_gpu_blocks(settings: EngineSettings) -> Capacity:
    """Another name of :func:`capacity`."""
    return capacity(settings)


def _block_bytes(settings: EngineSettings, model: Model) -> tuple[int, list[str]]:
    """Bytes of one block on one GPU: all layers with one group, else the layers of the largest group."""
    layer = layer_bytes_per_token(model, settings.kv_cache_dtype, settings.tensor_parallel_size)
    groups, said = settings.groups, []
    if len(groups) == 1:
        per_block = model.kv_layers * layer * (groups[0].block_size or 1)
    elif sum(g.layers for g in groups) == model.kv_layers:
        per_block = max(g.layers * (g.block_size or 1) for g in groups) * layer
    else:
        each = -(-model.kv_layers // len(groups))
        per_block = max(g.block_size or 1 for g in groups) * each * layer
        said.append(f"The groups do not name all {model.kv_layers} KV layers of {model.name}; {each} layers per group are assumed.")
    if any(kind == LINEAR for kind, _ in model.layer_kinds):
        said.append(f"The state of {model.name}'s linear-attention layers is not counted; the engine also raises the block size for it.")
    if any(kind == CHUNKED for kind, _ in model.layer_kinds):
        said.append(f"Chunked-attention layers of {model.name} are counted as if they kept the whole context.")
    return per_block, said


def _memory_sentence(gpu: Gpu) -> str:
    sure = "" if gpu.confidence == "high" else f" (this row of the table is of {gpu.confidence} confidence)"
    return f"The GPU has {gb_and_gib(gpu.total_bytes)} as torch reports it, the lower end of what was seen{sure}; nothing else runs on it."


def _no_room(settings: EngineSettings, model: Model, gpu: Gpu, requested: int, rest: Overhead, available: int) -> SettingsError:
    tp = settings.tensor_parallel_size
    if available + rest.total != requested:
        return SettingsError("available_kv_bytes", available, "memory for at least two blocks", "Use smaller blocks or more memory")
    allowed = (
        f"a model that leaves room for KV blocks in the {gb_and_gib(requested)} the engine may use of each {gpu.name}; "
        f"weights take {gb_and_gib(rest.weights)}, activations and logits {gb_and_gib(rest.activations)}, "
        f"other {gb_and_gib(rest.non_torch + rest.cuda_graphs)}"
    )
    enough = [t for t in (2, 4, 8, 16, 32, 64) if t > tp and model.attention_heads % t == 0 and model.weight_bytes / t < 0.8 * requested]
    advice = []
    if rest.weights < 0.9 * requested:
        advice.append("lower max_num_batched_tokens or max_num_seqs, or raise gpu_memory_utilization")
    if enough:
        advice.append(f"use more GPUs (tensor_parallel_size={enough[0]})")
    advice.append("take a GPU with more memory, an fp8 checkpoint or a smaller model")
    return SettingsError("model", model.name, allowed, "What helps: " + "; ".join(advice))
