"""SGLang as one of the engines (simkv/engine/engines.py)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.sglang.layout import NODE, QUEUE, REQUEST
from simkv.engine.sglang_settings import SglangResolved, resolve
from simkv.workload.workload import Workload

__all__ = ["bytes_needed", "make", "resolve"]

BYTES_OF_LISTS = 64
"""Per page, at most: table of children, both halves of the arena, free list, heap and lists of what was freed."""


def make(
    workload: Workload, s: SglangResolved, step_time: npt.NDArray[np.void], *, log: bool, max_events: int | None = None
) -> SglangEngine:
    """One replica, ready to ``advance``."""
    return SglangEngine(workload, configuration(s), step_time, log=log, max_events=max_events, settings=s)


def configuration(s: SglangResolved) -> SglangConfig:
    """The engine's numbers from resolved settings."""
    return SglangConfig(
        page_size=s.page_size,
        capacity=s.max_total_tokens,
        max_running_requests=s.max_running_requests,
        context_length=s.context_length,
        max_input_len=s.max_input_len,
        schedule_policy=s.schedule_policy,
        radix_eviction_policy=s.radix_eviction_policy,
        radix_eviction_policy_config=dict(s.policy_parameters),
        chunked_prefill_size=s.chunked_prefill_size,
        max_prefill_tokens=s.max_prefill_tokens,
        schedule_conservativeness=s.schedule_conservativeness,
        enable_mixed_chunk=s.enable_mixed_chunk,
        enable_priority_scheduling=s.enable_priority_scheduling,
        schedule_low_priority_values_first=s.schedule_low_priority_values_first,
        priority_preemption=s.enable_priority_scheduling and not s.disable_priority_preemption,
        priority_scheduling_preemption_threshold=s.priority_scheduling_preemption_threshold,
        retraction_policy=s.retraction_policy,
        disable_radix_cache=s.disable_radix_cache,
        random_seed=s.random_seed or 0,
        as_recorded=s.max_input_len is None,
    )


def bytes_needed(s: SglangResolved, requests: int) -> tuple[int, int]:
    """Bytes per page of the pool, and bytes for the requests."""
    return NODE.itemsize + BYTES_OF_LISTS, requests * (REQUEST.itemsize + 2 * QUEUE.itemsize)
