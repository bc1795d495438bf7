"""A contiguous replica's state from a workload and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contiguous import layout
from simkv.engine.step_time_layout import STEP_INDEX, STEP_TIME
from simkv.engine.vllm.layout import power_of_two, zeros
from simkv.engine.vllm.state import FIRST_STEPS, empty
from simkv.events.layout import EVENT, GAP, STEP
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.contiguous.resolve import Resolved

NO_LIMIT = np.iinfo(np.int64).max


def build(
    workload: Workload, s: Resolved, step_time: npt.NDArray[np.void], log: bool, max_events: int | None
) -> tuple[Any, Any, layout.Engine]:
    """``(config, counters, state)``: the CONFIG and COUNTERS records and the arrays; ``None`` for max_events is no limit."""
    n, cells, slots = len(workload), s.num_gpu_blocks - 1, s.max_running
    config, counters = zeros(1, layout.CONFIG)[0], zeros(1, layout.COUNTERS)[0]
    values = {
        "cells": cells,
        "cell": s.block_size,
        "max_running": slots,
        "max_model_len": s.max_model_len,
        "reservation": layout.RESERVATIONS.index(s.reservation),
        "buddy": s.allocator == "buddy",
        "static": s.batching == "static",
        "swap": s.preemption_mode == "swap",
        "host_tokens": s.host_tokens,
        "virtual": step_time["mode"][0] != STEP_INDEX,
        "log": log,
        "max_events": NO_LIMIT if max_events is None else max_events,
        "patience": s.swap_patience_s,
        "swap_job_s": s.swap_job_s,
        "swap_s_per_token": s.swap_s_per_token,
    }
    for name, value in values.items():
        config[name] = value
    for name in STEP_TIME.names or ():
        config[name] = step_time[name][0]
    counters.free, counters.free_slots = cells, slots
    rows, blocks = _expected_log(workload, s) if log else (1, 1)
    state = layout.Engine(
        *_memory(cells, s.allocator == "buddy"),
        reqs=_requests(workload),
        actions=workload.actions.view(np.recarray),
        queue=zeros(power_of_two(n + 1), layout.QUEUE),
        running=np.zeros(slots, np.int64),
        free_slots=np.arange(slots - 1, -1, -1, dtype=np.int64),
        slots=_slots(slots),
        leaving=zeros(slots, layout.MOVE),
        returning=zeros(slots, layout.MOVE),
        rows=zeros(slots, layout.ROW),
        log=empty(rows, EVENT),
        log_blocks=np.empty(blocks, np.int32),
        log_keys=np.empty(1, np.uint64),
        steps=empty(FIRST_STEPS, STEP),
        gaps=empty(max(FIRST_STEPS, 4 * slots), GAP),
    )
    return config, counters, state


def _memory(n: int, buddy: bool) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]:
    """All cells free: one hole (first fit), or the aligned powers of two the pool is made of."""
    cells, heads = zeros(n, layout.CELL), np.full(layout.ORDERS, -1, np.int32)
    cells["next"] = -1
    if not buddy:
        cells[0].span, heads[0] = n, 0
        return cells, heads
    at = 0
    for k in range(layout.ORDERS - 1, -1, -1):
        if n & (1 << k):
            cells[at].span, heads[k] = 1 << k, at
            at += 1 << k
    return cells, heads


def _slots(n: int) -> npt.NDArray[np.void]:
    slots = zeros(n, layout.SLOT)
    slots["req"] = -1
    return slots


def _requests(w: Workload) -> npt.NDArray[np.void]:
    reqs = zeros(len(w), layout.REQUEST)
    reqs["arrive"], reqs["num_prompt"], reqs["num_output"] = w.arrive, w.num_prompt, w.num_output
    for name in ("scheduled", "first_token", "last_token", "finish"):
        reqs[name] = np.nan
    reqs["slot"], reqs["first_after"], reqs["next_after"] = -1, -1, -1
    if w.after is not None:
        reqs["chained"] = w.after >= 0
        for i in np.flatnonzero(w.after >= 0)[::-1]:
            reqs["next_after"][i] = reqs["first_after"][w.after[i]]
            reqs["first_after"][w.after[i]] = i
    return reqs


def _expected_log(w: Workload, s: Resolved) -> tuple[int, int]:
    """Rows and blocks in runs to reserve: address space only, pages are used as they are written."""
    tokens = int(w.num_output.sum())
    first_turn = 3 * s.num_gpu_blocks + 12 * s.max_running + 4 * len(w) + 4 * len(w.actions) + 4096
    return tokens + tokens // s.block_size + 8 * len(w) + first_turn, first_turn
