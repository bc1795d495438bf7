"""From settings to numbers: every ``None`` filled in the way vLLM V0 does at start-up (vllm/config.py, 0.2.7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.errors import SettingsError
from simkv.hardware.capacity import Capacity, capacity
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.transfer import Link, host_link
from simkv.settings import EngineSettings, KVGroup
from simkv.settings.v0 import V0Settings
from simkv.workload.workload import Workload

WATERMARK = 0.01
"""Share of the pool an admission must leave free (vllm/core/block_manager.py; no setting in V0)."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class V0Resolved:
    """Settings with nothing left open.

    Args:
        num_gpu_blocks: V0's own number and one more: block 0 stands for no block, as in the other engines.
        width: sequences of every request (best_of).
        max_running: requests that can run at once, which is max_num_seqs over ``width``.
        watermark_blocks: blocks an admission must leave free.
        swap_always: swap groups of one sequence, too.
        swap_block_s: seconds it takes to move one block between GPU and host memory.
        capacity: how num_gpu_blocks came from model and GPU; ``None`` if it was given.
        notes: what was derived and how, and what to beware of, one sentence each.
    """

    version: str
    block_size: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_paddings: int
    max_model_len: int
    watermark_blocks: int
    width: int
    use_beam_search: bool
    beam_resampling: float
    beam_seed: int
    swap_always: bool
    swap_block_s: float
    capacity: Capacity | None
    notes: tuple[str, ...]
    engine: str = "vllm-v0"
    enable_prefix_caching: bool = False
    stats_at_lookup: bool = False
    lora_path_in_key: bool = False
    hash_algo: str = "sha256"

    @property
    def max_running(self) -> int:
        """Requests that may run at once."""
        return self.max_num_seqs // self.width

    @property
    def token_budget(self) -> int:
        """Tokens of one prompt step, padding included."""
        return self.max_num_batched_tokens

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """One for each sequence of a request: V0 has no KV groups, and the log tells sequences apart by them."""
        return (KVGroup(block_size=self.block_size),) * self.width

    @property
    def hash_block_size(self) -> int:
        """Tokens per block; nothing is hashed."""
        return self.block_size

    @property
    def scheduler_block_size(self) -> int:
        """Tokens per block."""
        return self.block_size


def resolve(s: V0Settings, workload: Workload) -> V0Resolved:
    """Fill in every setting for one workload.

    Raises:
        SettingsError: what V0 would refuse at start-up, with the sentence that says what to change.
    """
    notes: list[str] = []
    mml = s.max_model_len or _longest(s, workload, notes)
    budget = s.max_num_batched_tokens if s.max_num_batched_tokens is not None else max(mml, 2048)
    sized = None if s.num_gpu_blocks is not None else _capacity(s, mml, budget)
    blocks = s.num_gpu_blocks if sized is None else sized.num_gpu_blocks
    assert blocks is not None
    if sized is not None:
        notes.append(
            f"num_gpu_blocks={blocks:,} follows from {sized.model} on {s.tensor_parallel_size} x {sized.gpu};"
            " weights and activations are estimated as for today's vLLM."
        )
    block_bytes = s.block_size * kv_bytes_per_token(s.model, s.kv_cache_dtype, s.tensor_parallel_size)
    cpu_blocks = s.num_cpu_blocks if s.num_cpu_blocks is not None else int(s.swap_space * GIB) // block_bytes
    swaps = s.width > 1 or s.preemption_mode == "swap"
    link = host_link(find_gpu(s.gpu), s.swap_bandwidth) if swaps else None
    _check_start(s, mml, blocks, budget)
    notes += _notes(s, workload, cpu_blocks, link)
    return V0Resolved(
        version=s.engine_version,
        block_size=s.block_size,
        num_gpu_blocks=blocks + 1,
        num_cpu_blocks=cpu_blocks,
        max_num_seqs=s.max_num_seqs,
        max_num_batched_tokens=budget,
        max_paddings=s.max_paddings,
        max_model_len=mml,
        watermark_blocks=int(WATERMARK * blocks),
        width=s.width,
        use_beam_search=s.use_beam_search,
        beam_resampling=s.beam_resampling,
        beam_seed=s.beam_seed,
        swap_always=s.preemption_mode == "swap",
        swap_block_s=block_bytes / link.bandwidth if link else 0.0,
        capacity=sized,
        notes=tuple(notes),
    )


def _capacity(s: V0Settings, mml: int, budget: int) -> Capacity:
    """The pool as the current engine would size it with V0's share of memory."""
    like = EngineSettings(
        block_size=s.block_size,
        gpu_memory_utilization=s.gpu_memory_utilization,
        model=s.model,
        gpu=s.gpu,
        tensor_parallel_size=s.tensor_parallel_size,
        kv_cache_dtype=s.kv_cache_dtype,
        max_num_seqs=s.max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=mml,
    )
    return capacity(like)


def _longest(s: V0Settings, workload: Workload, notes: list[str]) -> int:
    lengths = workload.num_prompt.astype(np.int64) + workload.num_output
    longest = int(lengths.max()) if len(lengths) else s.block_size
    length = -(-longest // s.block_size) * s.block_size
    notes.append(f"max_model_len={length:,} is the longest request of the workload ({longest:,} tokens), rounded up to whole blocks.")
    return length


def _check_start(s: V0Settings, mml: int, blocks: int, budget: int) -> None:
    if mml > blocks * s.block_size:
        most = blocks * s.block_size
        raise SettingsError(
            "max_model_len", mml, f"at most {most}, what {blocks:,} blocks hold", "Raise num_gpu_blocks or lower max_model_len"
        )
    if budget < mml:
        hint = "V0 computes a whole prompt in one step"
        raise SettingsError("max_num_batched_tokens", budget, f"at least max_model_len={mml}", hint)
    if budget < s.max_num_seqs:
        raise SettingsError("max_num_batched_tokens", budget, f"at least max_num_seqs={s.max_num_seqs}")


def _notes(s: V0Settings, workload: Workload, cpu_blocks: int, link: Link | None) -> list[str]:
    out = [
        "V0 has no prefix cache: every prompt is computed whole, and nothing is shared between requests.",
        "A prompt step is charged for its padding: V0 pads all prompts of a step to the longest.",
    ]
    if s.width > 1:
        out.append(f"Every request generates {s.width} sequences of its output length; none ends early.")
    if s.use_beam_search:
        out.append(
            f"Which beams survive is drawn (beam_resampling={s.beam_resampling:g}, beam_seed={s.beam_seed}), not computed by a model."
        )
    if link is not None:
        out.append(
            f"Host memory holds {cpu_blocks:,} blocks of swapped requests; V0 stops with an error when it needs more. Swapping lengthens"
            f" a step by its bytes over {link.bandwidth / 1e9:,.1f} GB/s; that V0 copies block by block and layer by layer is not counted."
        )
    if any(int(a["op"]) != 0 for a in workload.actions):
        out.append("Resets of the prefix cache are passed over: there is none.")
    return out
