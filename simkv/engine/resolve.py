"""From settings to numbers: every ``None`` filled in the way vLLM does at start-up, and its refusals as sentences."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from simkv.engine.engines import merge
from simkv.engine.offload.resolve import Offload, resolve_offload
from simkv.engine.profiles import Profile, profile
from simkv.errors import SettingsError
from simkv.hardware.batch_defaults import batch_defaults
from simkv.hardware.capacity import Capacity, capacity
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import blocks_for, longest_request
from simkv.hardware.models import Model, find_model
from simkv.settings import EngineSettings, KVGroup
from simkv.workload.workload import Workload

T = TypeVar("T")
MANY_STEPS = 100
"""Steps one prompt may take before the user is told."""
MORE_POOL = "Raise num_gpu_blocks or gpu_memory_utilization"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with nothing left open.

    Args:
        num_gpu_blocks: blocks of the pool, the null block included; one less can be used.
        max_running: the smaller of max_num_seqs and max_num_active_seqs.
        watermark_blocks: blocks an admission must leave free.
        retention_interval: prefix_cache_retention_interval.
        capacity: how num_gpu_blocks came from model and GPU; ``None`` if it was given.
        notes: what was derived and how, and what to beware of, one sentence each.
        offload: the host tier, if there is one.
    """

    block_size: int
    num_gpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    long_prefill_token_threshold: int
    watermark_blocks: int
    policy: str
    max_loras: int | None
    max_running: int
    groups: tuple[KVGroup, ...]
    hash_block_size: int
    scheduler_block_size: int
    retention_interval: int | None
    hash_algo: str
    profile: Profile
    capacity: Capacity | None
    notes: tuple[str, ...]
    offload: Offload | None = None

    @property
    def engine(self) -> str:
        """The engine's name."""
        return "vllm"

    @property
    def version(self) -> str:
        """The release whose behaviour this is."""
        return self.profile.version

    @property
    def token_budget(self) -> int:
        """Tokens one step may compute."""
        return self.max_num_batched_tokens

    @property
    def stats_at_lookup(self) -> bool:
        """Whether queries and hits are counted at every lookup, not once at admission."""
        return self.profile.stats_at_lookup

    @property
    def lora_path_in_key(self) -> bool:
        """Whether an adapter's path is part of the block hash."""
        return self.profile.lora_path_in_key


def resolve(settings: EngineSettings, workload: Workload, *, check_pool: bool = True, explicit: Collection[str] = ()) -> Resolved:
    """Fill in every setting for one workload.

    Args:
        check_pool: apply vLLM's start-up checks. They are never applied to pool and length that both come from the
            workload's file: such runs were recorded without a server.
        explicit: as in :func:`merge`.

    Raises:
        SettingsError: what vLLM would refuse at start-up, with the sentence that says what to change.
    """
    s = merge(settings, workload, explicit)
    p = profile(s.engine_version)
    # Settings may come merged already; what only repeats the workload's file is not the user's wish.
    by_user = {name for name, value in settings.changed().items() if workload.engine.get(name) != value} | set(explicit)
    notes: list[str] = []
    if not re.match(rf"[vV]?{re.escape(p.version)}(?!\d)", s.engine_version.strip()):
        notes.append(
            f"vLLM {s.engine_version} has no profile of its own; it is replayed by the rules of {p.version}, the last one before it."
        )
    watermark = _existing("watermark", s.watermark, 0.0, p.watermark, p, by_user, notes)
    reserve = s.scheduler_reserve_full_isl if s.scheduler_reserve_full_isl is not None else bool(p.reserve_full_isl)
    reserve = _existing("scheduler_reserve_full_isl", reserve, False, p.reserve_full_isl is not None, p, by_user, notes)
    is_async = s.async_scheduling if s.async_scheduling is not None else p.async_default
    mml = s.max_model_len or _longest(s, workload, notes)
    budget, seqs = _batch(s, mml, notes)
    sized = None if s.num_gpu_blocks is not None else capacity(s, max_model_len=mml)
    blocks = s.num_gpu_blocks if sized is None else sized.num_gpu_blocks
    assert blocks is not None
    if sized is not None:
        notes.append(f"num_gpu_blocks={blocks:,} follows from {sized.model} on {s.tensor_parallel_size} x {sized.gpu}.")
    recorded = {"num_gpu_blocks", "max_model_len"} <= set(workload.engine) and not {"num_gpu_blocks", "max_model_len"} & by_user
    if check_pool and not recorded:
        in_flight = budget * (2 if is_async else 1)
        _check_start(s, workload, mml, blocks, in_flight, budget)
    offload = resolve_offload(s, p.version, notes)
    notes += _warnings(s, workload, mml, budget, seqs, sized, by_user)
    notes += _unservable(s, workload, blocks, budget * (2 if is_async else 1)) + _slow_prompts(s, workload, budget)
    return Resolved(
        block_size=s.block_size,
        num_gpu_blocks=blocks,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=mml,
        gpu_memory_utilization=s.gpu_memory_utilization if s.gpu_memory_utilization is not None else p.gpu_memory_utilization,
        enable_prefix_caching=s.enable_prefix_caching,
        enable_chunked_prefill=s.enable_chunked_prefill,
        scheduler_reserve_full_isl=reserve,
        async_scheduling=is_async,
        long_prefill_token_threshold=s.long_prefill_token_threshold,
        watermark_blocks=int(watermark * blocks),
        policy=s.policy,
        max_loras=s.max_loras,
        max_running=min(seqs, s.max_num_active_seqs or seqs),
        groups=s.groups,
        hash_block_size=s.hash_block_size,
        scheduler_block_size=s.scheduler_block_size,
        retention_interval=s.prefix_cache_retention_interval,
        hash_algo=s.prefix_caching_hash_algo,
        profile=p,
        capacity=sized,
        notes=tuple(notes),
        offload=offload,
    )


def _existing(name: str, value: T, off: T, exists: bool, p: Profile, by_user: set[str], notes: list[str]) -> T:
    """``value``, or ``off`` in a version that has no such setting; an error only if the user asked for it."""
    if exists or value == off:
        return value
    if name in by_user:
        raise SettingsError(name, value, f"{off}: vLLM {p.version} has no such setting", "Leave it out or choose a newer engine_version")
    notes.append(f"{name} of the workload's file is off: vLLM {p.version} has no such setting.")
    return off


def _lengths(workload: Workload) -> npt.NDArray[np.int64]:
    return workload.num_prompt.astype(np.int64) + workload.num_output


def _longest(s: EngineSettings, workload: Workload, notes: list[str]) -> int:
    step = s.scheduler_block_size
    longest = int(_lengths(workload).max()) if len(workload) else step
    length = -(-longest // step) * step
    notes.append(f"max_model_len={length:,} is the longest request of the workload ({longest:,} tokens), rounded up to whole blocks.")
    return length


def _batch(s: EngineSettings, mml: int, notes: list[str]) -> tuple[int, int]:
    if s.max_num_batched_tokens is not None and s.max_num_seqs is not None:
        return s.max_num_batched_tokens, s.max_num_seqs
    gpu = find_gpu(s.gpu)
    budget, seqs = batch_defaults(gpu, mml, s.enable_chunked_prefill, s.max_num_seqs, s.max_num_batched_tokens)
    chosen = [f"max_num_batched_tokens={budget:,}"] if s.max_num_batched_tokens is None else []
    chosen += [f"max_num_seqs={seqs:,}"] if s.max_num_seqs is None else []
    notes.append(f"{' and '.join(chosen)}: vLLM's default for a server on {gpu.name}.")
    return budget, seqs


def _check_start(s: EngineSettings, workload: Workload, mml: int, blocks: int, in_flight: int, budget: int) -> None:
    need = blocks_for(s.groups, mml, in_flight)
    if need > blocks - 1:
        most = longest_request(s.groups, blocks - 1, in_flight, mml)
        pool = f"{blocks - 1} usable blocks of {s.block_size} tokens"
        allowed = f"at most {most}, the estimated maximum for {pool} (it needs {need} blocks)" if most else f"no length at all with {pool}"
        if s.max_model_len is None:
            who = workload.id(int(_lengths(workload).argmax())) if len(workload) else "none"
            hint = f"The longest request ({who}) sets it. {MORE_POOL}, or set max_model_len={most} to have longer requests rejected"
        else:
            hint = f"{MORE_POOL}, or lower max_model_len"
        raise SettingsError("max_model_len", mml, allowed, hint)
    if not s.enable_chunked_prefill and budget < mml:
        hint = f"A whole prompt must fit in one step; set max_num_batched_tokens={mml} or enable_chunked_prefill=true"
        raise SettingsError("max_num_batched_tokens", budget, f"at least max_model_len={mml} without chunked prefill", hint)


def _warnings(
    s: EngineSettings, workload: Workload, mml: int, budget: int, seqs: int, sized: Capacity | None, by_user: set[str]
) -> list[str]:
    out = []
    if budget < seqs:
        out.append(f"vLLM refuses to start with max_num_batched_tokens={budget:,} below max_num_seqs={seqs:,}; the replay goes on.")
    if s.enable_prefix_caching and s.scheduler_block_size > mml:
        out.append(
            f"A block of {s.scheduler_block_size:,} tokens is longer than max_model_len={mml:,}, so no request ever fills one: prefix"
            " caching is inert. Take smaller blocks."
        )
    elif len(workload) and s.enable_prefix_caching and int(workload.num_prompt.max()) <= s.scheduler_block_size:
        out.append(f"No prompt is longer than one block of {s.scheduler_block_size} tokens, so nothing can be found in the cache.")
    if s.num_gpu_blocks is not None and "num_gpu_blocks" in workload.engine and s.num_gpu_blocks == workload.engine["num_gpu_blocks"]:
        out.append(f"num_gpu_blocks={s.num_gpu_blocks:,} comes from the workload's file, not from model and GPU.")
    if sized is not None or "model" in by_user:
        out += _about_model(s, find_model(s.model), int(_lengths(workload).max()) if len(workload) else 0)
    return out


def _unservable(s: EngineSettings, workload: Workload, blocks: int, in_flight: int) -> list[str]:
    """Requests larger than the whole pool. Only a pool from a recording comes here: vLLM refuses to start with one it sized itself."""
    lengths = _lengths(workload)
    if not len(lengths) or blocks_for(s.groups, int(lengths.max()), in_flight) < blocks:
        return []
    who = int(lengths.argmax())
    needs = blocks_for(s.groups, int(lengths[who]), in_flight)
    return [
        f"{workload.id(who)} ({lengths[who]:,} tokens) needs {needs:,} blocks, and {blocks - 1:,} are usable: it can never be served. vLLM"
        f" does not reject it, it waits for ever and so does all behind it. {MORE_POOL}, or lower max_model_len to have it rejected."
    ]


def _slow_prompts(s: EngineSettings, workload: Workload, budget: int) -> list[str]:
    """A prompt of so many steps that everybody waits behind it."""
    steps = -(-int(workload.num_prompt.max()) // budget) if len(workload) else 0
    if steps < MANY_STEPS or 0 < s.long_prefill_token_threshold < budget:
        return []
    who = int(workload.num_prompt.argmax())
    return [
        f"{workload.id(who)}'s prompt of {workload.num_prompt[who]:,} tokens takes {steps:,} steps of max_num_batched_tokens={budget:,},"
        " and short requests wait behind it. Raise the budget or cap long prefills (long_prefill_token_threshold)."
    ]


def _about_model(s: EngineSettings, model: Model, longest: int) -> list[str]:
    out = []
    if longest > model.max_position:
        out.append(
            f"The longest request has {longest:,} tokens; {model.name} is made for {model.max_position:,}. It is replayed all the same."
        )
    if model.hybrid and len(s.groups) == 1 and s.groups[0].type == "full":
        kinds = " and ".join(f"{n} {kind}" for kind, n in model.layer_kinds)
        out.append(
            f"{model.name} has {kinds} attention layers, but the settings describe one full group: every layer is charged for the whole"
            " context, so fewer requests fit than in vLLM's hybrid cache, and hits need no window. hybrid=model uses vLLM's own groups."
        )
    return out
