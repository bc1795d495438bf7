"""From settings to numbers for the contiguous baselines, and what cannot start as a sentence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.engine.engines import merge
from simkv.errors import SettingsError
from simkv.hardware.batch_defaults import batch_defaults
from simkv.hardware.capacity import Capacity, capacity
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.tables import GB, GIB
from simkv.hardware.transfer import Link, host_link
from simkv.settings import EngineSettings, KVGroup
from simkv.settings.contiguous import ContiguousSettings
from simkv.workload.workload import Workload

I8 = npt.NDArray[np.int64]
Whole = npt.NDArray[np.signedinteger]
SCHEMES = {
    "max": "max_model_len tokens (Orca Max)",
    "pow2": "its prompt and its output rounded up to a power of two (Orca Pow2)",
    "oracle": "its prompt and its output, known beforehand (Orca Oracle)",
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with nothing left open.

    Args:
        block_size: tokens per cell.
        num_gpu_blocks: cells of the pool, the null cell included; one less can be used.
        max_running: requests that may hold memory at once.
        largest_piece: cells of the largest piece the workload can ask for, rounded as the allocator does.
        host_tokens: tokens that fit in swap_space_gib; swap_s_per_token: seconds to move one token one way,
            swap_job_s what each move takes besides.
        capacity: how num_gpu_blocks came from model and GPU; ``None`` if it was given.
    """

    version: str
    reservation: str
    allocator: str
    batching: str
    preemption_mode: str
    block_size: int
    num_gpu_blocks: int
    max_running: int
    max_model_len: int
    largest_piece: int
    host_tokens: int
    swap_s_per_token: float
    swap_job_s: float
    swap_patience_s: float
    capacity: Capacity | None
    notes: tuple[str, ...]
    engine: str = "contiguous"
    enable_prefix_caching: bool = False
    stats_at_lookup: bool = False
    lora_path_in_key: bool = False
    hash_algo: str = "sha256"

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """One full group."""
        return (KVGroup(block_size=self.block_size),)

    @property
    def hash_block_size(self) -> int:
        """Nothing is hashed; a cell stands in for a block."""
        return self.block_size

    @property
    def scheduler_block_size(self) -> int:
        """The same."""
        return self.block_size

    @property
    def token_budget(self) -> int:
        """No limit of its own: at most every place computes a prompt of the longest length."""
        return self.max_running * self.max_model_len

    def asked(self, workload: Workload) -> I8:
        """Tokens each request of the workload reserves, before the allocator rounds; shape ``[n]``."""
        return asked_tokens(self.reservation, workload.num_prompt, workload.num_output, self.max_model_len)


def resolve(settings: ContiguousSettings, workload: Workload, *, explicit: Collection[str] = ()) -> Resolved:
    """Fill in every setting for one workload. Pool and limits follow from model and GPU exactly as vLLM's would.

    Raises:
        SettingsError: unknown model or GPU, no room for weights, or a request that could never be placed.
    """
    s = merge(settings, workload, explicit)
    notes = [f"Every request reserves {SCHEMES[s.reservation]}."]
    mml = s.max_model_len or int(_lengths(workload).max(initial=s.block_size))
    if s.max_model_len is None:
        notes.append(f"max_model_len={mml:,} is the longest request of the workload.")
    _, seqs = batch_defaults(find_gpu(s.gpu), mml, True, s.max_num_seqs, None)
    sized = None if s.num_gpu_blocks is not None else capacity(_as_vllm(s, mml))
    cells = s.num_gpu_blocks if sized is None else sized.num_gpu_blocks
    assert cells is not None
    if sized is not None:
        notes.append(f"num_gpu_blocks={cells:,} follows from {sized.model} on {s.tensor_parallel_size} x {sized.gpu}, as for vLLM.")
    if s.max_num_seqs is None:
        notes.append(f"max_num_seqs={seqs:,}: vLLM's default for a server on {find_gpu(s.gpu).name}.")
    host_tokens, link, per_token = _host(s, notes)
    return Resolved(
        version=s.engine_version,
        reservation=s.reservation,
        allocator=s.allocator,
        batching=s.batching,
        preemption_mode=s.preemption_mode,
        block_size=s.block_size,
        num_gpu_blocks=cells,
        max_running=min(seqs, cells - 1),
        max_model_len=mml,
        largest_piece=_largest(s, workload, mml, cells - 1),
        host_tokens=host_tokens,
        swap_s_per_token=per_token / link.bandwidth if link else 0.0,
        swap_job_s=link.job_s if link else 0.0,
        swap_patience_s=s.swap_patience_s,
        capacity=sized,
        notes=tuple(notes),
    )


def asked_tokens(reservation: str, num_prompt: Whole, num_output: Whole, max_model_len: int | None) -> I8:
    """Tokens each request reserves, before an allocator rounds (the rule of pieces.py). Shapes ``[n]``.

    Args:
        max_model_len: what *max* reserves and the most any scheme does; ``None`` is no limit, for *pow2* and *oracle*.
    """
    if reservation == "max":
        assert max_model_len is not None
        return np.full(len(num_prompt), max_model_len, np.int64)
    output = power_of_two(num_output) if reservation == "pow2" else num_output.astype(np.int64)
    asked = num_prompt.astype(np.int64) + output
    return asked if max_model_len is None else np.minimum(asked, max_model_len)


def power_of_two(n: Whole) -> I8:
    """The smallest power of two that is at least ``n`` (at least 1), element by element; exact below 2^52."""
    mantissa, exponent = np.frexp(np.maximum(n, 1).astype(np.float64))
    return np.asarray(np.left_shift(1, exponent.astype(np.int64) - (mantissa == 0.5)), np.int64)


def _lengths(workload: Workload) -> I8:
    return workload.num_prompt.astype(np.int64) + workload.num_output


def _as_vllm(s: ContiguousSettings, mml: int) -> EngineSettings:
    """vLLM with the same memory: what the pool is computed from."""
    return EngineSettings(
        block_size=s.block_size,
        gpu_memory_utilization=s.gpu_memory_utilization,
        model=s.model,
        gpu=s.gpu,
        tensor_parallel_size=s.tensor_parallel_size,
        kv_cache_dtype=s.kv_cache_dtype,
        max_num_seqs=s.max_num_seqs,
        max_model_len=mml,
    )


def _host(s: ContiguousSettings, notes: list[str]) -> tuple[int, Link | None, int]:
    """Tokens that fit in host memory, the way there, and bytes of a token on each GPU."""
    per_token = kv_bytes_per_token(s.model, s.kv_cache_dtype, s.tensor_parallel_size)
    if s.preemption_mode == "none":
        return 0, None, per_token
    link = host_link(find_gpu(s.gpu), s.swap_gb_s * GB if s.swap_gb_s is not None else None)
    notes.append(f"A swapped token is {per_token:,} bytes on each GPU.")
    notes.extend(link.assumptions)
    return int(s.swap_space_gib * GIB) // per_token, link, per_token


def _largest(s: ContiguousSettings, workload: Workload, mml: int, cells: int) -> int:
    asked = asked_tokens(s.reservation, workload.num_prompt, workload.num_output, mml)
    pieces = -(-asked // s.block_size)
    room = cells
    if s.allocator == "buddy":
        pieces, room = power_of_two(pieces), 1 << (cells.bit_length() - 1)
    largest = int(pieces.max(initial=1))
    if largest > room:
        what = "piece" if s.allocator == "first_fit" else "aligned power of two"
        if s.reservation == "max":
            value: object = mml
            hint = "Lower it, or raise num_gpu_blocks or gpu_memory_utilization"
        else:
            who = workload.id(int(pieces.argmax()))
            value, hint = mml, f"Request {who} sets it; raise num_gpu_blocks or gpu_memory_utilization"
        allowed = f"a length whose reservation fits in {room:,} cells of {s.block_size} tokens, the largest {what} of the pool"
        raise SettingsError("max_model_len", value, f"{allowed} (it needs {largest:,})", hint)
    return largest
