"""From SGLang's settings to numbers: every ``None`` filled in the way SGLang does at start-up, its refusals as sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.engine.engines import merge
from simkv.errors import SettingsError
from simkv.hardware.gpus import find_gpu
from simkv.hardware.sglang_capacity import SglangCapacity, chunked_prefill_size, sglang_capacity
from simkv.settings import KVGroup, SglangSettings
from simkv.workload.workload import Workload

INPUT_MARGIN = 6
"""A prompt must be shorter than context_length (or the pool) by so many tokens (managers/tp_worker.py)."""
MOST_REQUESTS, FEWEST_REQUESTS = 4096, 2048


@dataclass(frozen=True, slots=True)
class SglangResolved:
    """Settings with nothing left open. Names as in simkv/engine/contract.py where every engine has them.

    Args:
        max_total_tokens: tokens of the pool.
        chunked_prefill_size: ``None`` = off.
        max_input_len: prompts of so many tokens or more are refused; ``None`` for runs recorded without a server.
        policy_parameters: of radix_eviction_policy (name, value).
    """

    page_size: int
    max_total_tokens: int
    max_running_requests: int
    context_length: int
    max_input_len: int | None
    chunked_prefill_size: int | None
    max_prefill_tokens: int
    schedule_policy: str
    schedule_conservativeness: float
    enable_mixed_chunk: bool
    enable_priority_scheduling: bool
    schedule_low_priority_values_first: bool
    disable_priority_preemption: bool
    priority_scheduling_preemption_threshold: int
    retraction_policy: str
    disable_radix_cache: bool
    radix_eviction_policy: str
    policy_parameters: tuple[tuple[str, int], ...]
    random_seed: int | None
    version: str
    capacity: SglangCapacity | None
    notes: tuple[str, ...]

    engine = "sglang"
    hash_algo = "64-bit key"
    stats_at_lookup = False
    lora_path_in_key = False

    @property
    def block_size(self) -> int:
        """Tokens per page."""
        return self.page_size

    @property
    def num_gpu_blocks(self) -> int:
        """Pages of the pool, page 0 (padding) included."""
        return self.max_total_tokens // self.page_size + 1

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """One full group."""
        return (KVGroup("full", None, self.page_size),)

    @property
    def hash_block_size(self) -> int:
        """Tokens per key in the event log."""
        return self.page_size

    @property
    def scheduler_block_size(self) -> int:
        """Granularity of hits in tokens."""
        return self.page_size

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether the radix cache is on."""
        return not self.disable_radix_cache

    @property
    def max_running(self) -> int:
        """Requests that may run at once."""
        return self.max_running_requests

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output."""
        return self.context_length

    @property
    def token_budget(self) -> int:
        """Prompt tokens one step may compute."""
        return min(self.chunked_prefill_size or self.max_prefill_tokens, self.max_prefill_tokens)


def resolve(settings: SglangSettings, workload: Workload) -> SglangResolved:
    """Fill in every setting for one workload.

    Raises:
        SettingsError: what SGLang would refuse at start-up.
    """
    s = merge(settings, workload)
    notes: list[str] = []
    recorded = "max_total_tokens" in workload.engine and s.max_total_tokens == workload.engine["max_total_tokens"]
    if s.retraction_policy == "priority" and not s.enable_priority_scheduling and not recorded:
        raise SettingsError("retraction_policy", "priority", "length without enable_priority_scheduling=true")
    sized = None if s.max_total_tokens is not None else sglang_capacity(s)
    tokens = s.max_total_tokens if s.max_total_tokens is not None else sized.kv_tokens if sized is not None else 0
    if sized is not None:
        notes.append(f"max_total_tokens={tokens:,} follows from {sized.model} on {s.tensor_parallel_size} x {sized.gpu}.")
    elif recorded:
        notes.append(f"max_total_tokens={tokens:,} comes from the workload's file, not from model and GPU.")
    context = s.context_length or _longest(workload, notes)
    most_input = None if recorded else min(context, tokens) - INPUT_MARGIN
    if most_input is not None and most_input < 1:
        raise SettingsError("max_total_tokens", tokens, f"more than {INPUT_MARGIN + 1} tokens of pool and of context_length")
    if most_input is not None and context > tokens:
        notes.append(f"The pool holds {tokens:,} tokens, fewer than context_length={context:,}: longer requests are refused or cut short.")
    running = s.max_running_requests
    if running is None:
        running = max(min(int(tokens / context * 512), MOST_REQUESTS), FEWEST_REQUESTS)
        notes.append(f"max_running_requests={min(running, tokens // 2):,}: SGLang's default for this pool and context_length.")
    if not recorded:
        running = max(1, min(running, tokens // 2))
    chunk = s.chunked_prefill_size
    if chunk is None:
        chunk = chunked_prefill_size(find_gpu(s.gpu))
        notes.append(f"chunked_prefill_size={chunk:,}: SGLang's default for {s.gpu}.")
    notes.append(
        "The overlap scheduler (on by default in SGLang) is not modelled: each result is processed before the next step is planned."
    )
    return SglangResolved(
        page_size=s.page_size,
        max_total_tokens=tokens,
        max_running_requests=running,
        context_length=context,
        max_input_len=most_input,
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=s.max_prefill_tokens,
        schedule_policy=s.schedule_policy,
        schedule_conservativeness=s.schedule_conservativeness,
        enable_mixed_chunk=s.enable_mixed_chunk,
        enable_priority_scheduling=s.enable_priority_scheduling,
        schedule_low_priority_values_first=s.schedule_low_priority_values_first,
        disable_priority_preemption=s.disable_priority_preemption,
        priority_scheduling_preemption_threshold=s.priority_scheduling_preemption_threshold,
        retraction_policy=s.retraction_policy,
        disable_radix_cache=s.disable_radix_cache,
        radix_eviction_policy=s.radix_eviction_policy,
        policy_parameters=tuple(sorted(s.policy_parameters().items())),
        random_seed=s.random_seed,
        version=s.engine_version,
        capacity=sized,
        notes=tuple(notes),
    )


def _longest(workload: Workload, notes: list[str]) -> int:
    longest = int((workload.num_prompt.astype(np.int64) + workload.num_output).max()) if len(workload) else 1
    context = longest + INPUT_MARGIN + 1
    notes.append(f"context_length={context:,} holds the longest request of the workload ({longest:,} tokens).")
    return context
