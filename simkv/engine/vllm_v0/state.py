"""A replica's state from a workload and settings: every array sized and filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv.engine.step_time_layout import STEP_INDEX, STEP_TIME
from simkv.engine.vllm.layout import QUEUE, REQUEST, power_of_two, zeros
from simkv.engine.vllm.state import FIRST_STEPS, empty
from simkv.engine.vllm_v0 import layout
from simkv.events.layout import EVENT, GAP, STEP
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.vllm_v0.parentage import Parentage
    from simkv.engine.vllm_v0.resolve import V0Resolved

FIRST_ROWS = 1 << 16


def build(
    w: Workload, s: V0Resolved, step_time: npt.NDArray[np.void], log: bool, max_events: int | None, parents: Parentage | None
) -> tuple[Any, Any, layout.State]:
    """``(config, counters, state)``: the CONFIG and COUNTERS records and the arrays; ``None`` for max_events is no limit."""
    n, width, slots = len(w), s.width, s.max_running
    longest = int(min(s.max_model_len + 1, (w.num_prompt.astype(np.int64) + w.num_output).max(initial=1)))
    config = zeros(1, layout.CONFIG)
    for name, value in _config(s, log, bool(step_time["mode"][0] != STEP_INDEX)).items():
        config[0][name] = value
    for name in STEP_TIME.names or ():
        config[0][name] = step_time[name][0]
    config[0].max_events = np.iinfo(np.int64).max if max_events is None else max_events
    config[0].recorded = parents is not None
    counters = zeros(1, layout.COUNTERS)
    c = counters[0]
    c.free, c.cpu_free, c.free_slots, c.failed_req = s.num_gpu_blocks - 1, s.num_cpu_blocks, slots, -1
    i4, i8 = np.int32, np.int64
    most = max(s.num_gpu_blocks, s.num_cpu_blocks)
    state = layout.State(
        reqs=_requests(w),
        actions=w.actions.view(np.recarray),
        queue=zeros(power_of_two(n + 1), QUEUE),
        running=np.zeros(slots, i8),
        swapped=np.zeros(slots, i8),
        free_slots=np.arange(slots - 1, -1, -1, dtype=i8),
        slots=zeros(slots, layout.SLOT),
        order=np.zeros((slots, width), i4),
        tables=np.empty((slots * width, -(-longest // s.block_size) + 1), i4),
        ref=np.zeros(s.num_gpu_blocks, i4),
        free=np.arange(s.num_gpu_blocks - 1, -1, -1, dtype=i4),
        cpu_ref=np.zeros(s.num_cpu_blocks, i4),
        cpu_free=np.arange(s.num_cpu_blocks, dtype=i4),
        moved_to=np.zeros(most, i4),
        moved_in=np.zeros(most, i8),
        parents=np.zeros(2 * width, i4),
        descent=np.zeros((3, 2 * width), i4),
        recorded=parents.rows if parents is not None else np.zeros((1, 2 * width), i4),
        first_recorded=parents.first if parents is not None else np.zeros(n + 1, i8),
        rows=np.zeros(slots, i8),
        log=empty(FIRST_ROWS if log else 1, EVENT),
        log_blocks=np.empty(FIRST_ROWS if log else 1, i4),
        log_keys=np.zeros(1, np.uint64),
        steps=empty(FIRST_STEPS, STEP),
        gaps=empty(max(FIRST_STEPS, 4 * slots), GAP),
    )
    return config[0], c, state


def bytes_needed(s: V0Resolved, requests: int) -> tuple[int, int]:
    """Memory a replay fills at once: bytes per block of the pool, and bytes besides."""
    return 4 + 4 + 4 + 8, requests * (REQUEST.itemsize + 2 * QUEUE.itemsize) + 20 * s.num_cpu_blocks


def _config(s: V0Resolved, log: bool, virtual: bool) -> dict[str, Any]:
    return {
        "num_blocks": s.num_gpu_blocks,
        "num_cpu_blocks": s.num_cpu_blocks,
        "block_size": s.block_size,
        "width": s.width,
        "beam": s.use_beam_search,
        "max_running": s.max_running,
        "max_num_seqs": s.max_num_seqs,
        "budget": s.max_num_batched_tokens,
        "max_paddings": s.max_paddings,
        "max_model_len": s.max_model_len,
        "prompt_limit": min(s.max_model_len, s.max_num_batched_tokens),
        "watermark": s.watermark_blocks,
        "swap_always": s.swap_always,
        "swap_block_s": s.swap_block_s,
        "seed": s.beam_seed,
        "resampling": min(int(s.beam_resampling * 2.0**64), 2**64 - 1),
        "virtual": virtual,
        "log": log,
    }


def _requests(w: Workload) -> npt.NDArray[np.void]:
    reqs = zeros(len(w), REQUEST)
    reqs["arrive"], reqs["tie"], reqs["num_prompt"], reqs["num_output"] = w.arrive, w.arrive, w.num_prompt, w.num_output
    for name in ("scheduled", "first_token", "last_token", "finish"):
        reqs[name] = np.nan
    reqs["slot"], reqs["first_after"], reqs["next_after"] = -1, -1, -1
    if w.after is not None:
        reqs["chained"] = w.after >= 0
        for i in np.flatnonzero(w.after >= 0)[::-1]:
            reqs["next_after"][i] = reqs["first_after"][w.after[i]]
            reqs["first_after"][w.after[i]] = i
    return reqs
