"""All state of a contiguous replica as structured numpy arrays. Nothing here is compiled.

Fields that vLLM's queue, arrivals and step time read have vLLM's names, so that those functions serve both engines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


def _record(f8: str = "", i8: str = "", i4: str = "") -> np.dtype[Any]:
    fields = [(name, kind) for kind, names in (("f8", f8), ("i8", i8), ("i4", i4)) for name in names.split()]
    return np.dtype(fields, align=True)


CONFIG = _record(
    i8="cells cell max_running max_model_len reservation buddy static swap host_tokens priority virtual log mode max_events",
    f8="patience swap_job_s swap_s_per_token a b c overhead_s flops_per_token flops_per_token_context weight_bytes kv_bytes_per_token"
    " peak_flops bandwidth",
)
"""Settings as numbers; ``cells`` without the null cell. The last fields say how long a step takes
(simkv/engine/step_time_layout.py). ``priority`` is always 0: first come, first served."""
COUNTERS = _record(
    f8="now out_free in_free next_turn",
    i8="steps turns tokens padding finished aborted rejected preemptions stored removed requests queries hits"
    " recompute_requests recompute_queries recompute_hits events logged_rows logged_blocks logged_keys logged_steps"
    " logged_gaps need_events free cached held next_arrival next_action timers wait_head wait_len running unfinished"
    " free_slots rows phase empty_schedules batch_prompt batch_left out_head out_len in_head in_len host_used swap_ins"
    " swapped_tokens",
)
"""``padding``: tokens a static batch computes for nobody. ``batch_prompt``: longest prompt of the static batch, ``batch_left``
members still generating. ``out_*``, ``in_*``: transfers under way in each direction. ``host_used``: tokens in host memory."""
CELL = _record(i4="next span owner")
"""``span`` > 0 where a piece begins (free or taken), in cells. ``owner``: request + 1, 0 = free. ``next``: next free piece of
the same list by address, -1 = none."""
SLOT = _record(f8="last_time since", i4="req at computed num_tokens num_prompt last_tokens last_batch ended")
"""An admitted request. ``at``: its first cell; ``since``: running since; ``ended``: it has ended but
its memory is still taken (static batch, transfer under way)."""
REQUEST = _record(
    f8="arrive tie scheduled first_token last_token finish waiting_since",
    i4="num_prompt num_output generated slot status hit preempted priority name_rank first_after next_after chained computed",
)
"""``computed``: tokens in host memory of a swapped request."""
QUEUE = _record(i8="waiting skipped timer")
ROW = _record(i4="req slot computed n sampled")
MOVE = _record(f8="end", i4="slot")
"""A transfer; each direction has a ring of them, first come, first served."""

MAX, POW2, ORACLE = range(3)
RESERVATIONS = ("max", "pow2", "oracle")
ORDERS = 31
"""Lists of free pieces: one per power of two (buddy), or the first only (first fit)."""


class Engine(NamedTuple):
    """A replica. N cells, n requests, S running at most."""

    cells: np.ndarray  # CELL[N]; cell i is block i + 1 of the log
    heads: np.ndarray  # i4[ORDERS] first free piece of each list, -1 = none
    reqs: np.ndarray  # REQUEST[n] in arrival order
    actions: np.ndarray  # ACTION in order of time
    queue: np.ndarray  # QUEUE[2^k]
    running: np.ndarray  # i8[S] slots that compute, in order of admission
    free_slots: np.ndarray  # i8[S] stack
    slots: np.ndarray  # SLOT[S]
    leaving: np.ndarray  # MOVE[S] ring: to host memory
    returning: np.ndarray  # MOVE[S] ring: from host memory
    rows: np.ndarray  # ROW[S] what the step computes
    log: np.ndarray  # EVENT[L] packed rows (simkv/events/packed.py)
    log_blocks: np.ndarray  # i4[B]
    log_keys: np.ndarray  # u8[1] nothing is ever cached
    steps: np.ndarray  # STEP[T]
    gaps: np.ndarray  # GAP[g]
