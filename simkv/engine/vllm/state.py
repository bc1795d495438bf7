"""A replica's state from a workload and settings: every array sized, filled and linked.

Big logs are reserved as address space; their pages are used as they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simkv.engine.offload.state import build_host, most_slots
from simkv.engine.step_time_layout import STEP_INDEX, STEP_TIME
from simkv.engine.vllm import layout
from simkv.engine.vllm.chain import group_key
from simkv.engine.vllm.keys import root_key
from simkv.events.layout import EVENT, GAP, STEP, TICK
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.resolve import Resolved

FIRST_STEPS = 1 << 13
"""Rows of the tables of steps and gaps before they grow."""
MANY_TOKENS = 1 << 13
"""A workload with more output starts with 32 times as many steps: growing copies, and what is not used costs nothing."""


def empty(n: int, dtype: np.dtype[Any]) -> Any:
    """Address space for ``n`` records; pages are used as they are written."""
    return np.empty(n, dtype).view(np.recarray)


def build(
    workload: Workload, s: Resolved, step_time: npt.NDArray[np.void], log: bool, max_events: int | None
) -> tuple[Any, Any, layout.Engine]:
    """``(config, counters, state)``: the CONFIG and COUNTERS records and the arrays; ``None`` for max_events is no limit."""
    n, groups = len(workload), len(s.groups)
    longest = int(min(s.max_model_len, (workload.num_prompt + workload.num_output).max(initial=1)))
    sizes = [g.block_size or s.block_size for g in s.groups]
    width = -(-longest // min(sizes)) + 2
    slots = s.max_running + 1 if s.offload is None else most_slots(s.offload, s, n)
    timed = bool(step_time["mode"][0] != STEP_INDEX)
    config = layout.zeros(1, layout.CONFIG)
    for name, value in _config(s, longest, min(sizes), width, log, timed).items():
        config[0][name] = value
    for name in STEP_TIME.names or ():
        config[0][name] = step_time[name][0]
    group_table, extra_keys = _groups(s, sizes)
    counters = layout.zeros(1, layout.COUNTERS)
    c = counters[0]
    c.free, c.free_slots, c.head_slot, c.head_req = s.num_gpu_blocks - 1, slots, -1, -1
    blocks = _blocks(s.num_gpu_blocks, extra_keys)
    c.free_entries = s.num_gpu_blocks if extra_keys else 0
    rows, run_blocks, keys = _expected_log(workload, s) if log else (1, 1, 1)
    config[0].max_events = np.iinfo(np.int64).max if max_events is None else max_events
    first_steps = FIRST_STEPS * (32 if workload.num_output.sum() > MANY_TOKENS else 1)
    i4, i8 = np.int32, np.int64
    state = layout.Engine(
        groups=group_table,
        blocks=blocks,
        table=np.zeros(layout.power_of_two(2 * len(blocks)), np.uint64),
        reqs=_requests(workload, s.profile.lora_path_in_key),
        runs=workload.runs.view(np.recarray),
        tokens=workload.tokens,
        images=workload.images.view(np.recarray),
        actions=workload.actions.view(np.recarray),
        queue=layout.zeros(layout.power_of_two(n + 1), layout.QUEUE),
        running=np.zeros(slots, i8),
        free_slots=np.arange(slots - 1, -1, -1, dtype=i8),
        slots=layout.zeros(slots, layout.SLOT),
        lengths=layout.zeros(slots * groups, layout.TABLE),
        tables=np.empty((slots * groups, width), i4),
        keys=np.empty((slots, longest // s.hash_block_size + 2), np.uint64),
        rows=np.zeros((2, slots), layout.ROW).view(np.recarray),
        batches=layout.zeros(2, layout.BATCH),
        victims=np.zeros(slots, i4),
        adapters=np.zeros(len(workload.loras) + 1, i4),
        log=empty(rows, EVENT),
        log_blocks=np.empty(run_blocks, np.int32),
        log_keys=np.empty(keys, np.uint64),
        steps=empty(first_steps, STEP),
        ticks=empty(4 * first_steps, TICK),
        gaps=empty(max(FIRST_STEPS, 4 * slots), GAP),
        kv_kinds=np.empty(1, np.uint8),
        kv_keys=np.empty(1, np.uint64),
        kv_turns=np.empty(1, i4),
    )
    if s.offload is not None:
        state = state._replace(**build_host(workload, s, s.offload, slots, longest, timed, first_steps))
        _rank_names(workload, state.reqs)
    return config[0], c, state


def _config(s: Resolved, longest: int, shortest_block: int, width: int, log: bool, virtual: bool) -> dict[str, int]:
    p = s.profile
    return {
        "num_blocks": s.num_gpu_blocks,
        "max_running": s.max_running,
        "budget": s.max_num_batched_tokens,
        "max_model_len": s.max_model_len,
        "caching": s.enable_prefix_caching,
        "hashing": s.enable_prefix_caching or s.offload is not None,
        "chunked": s.enable_chunked_prefill,
        "threshold": s.long_prefill_token_threshold,
        "watermark": s.watermark_blocks,
        "reserve_full_isl": s.scheduler_reserve_full_isl,
        "asynchronous": s.async_scheduling,
        "priority": s.policy == "priority",
        "max_loras": s.max_loras or 0,
        "num_groups": len(s.groups),
        "num_kinds": len({(g.type, g.window, g.block_size) for g in s.groups}),
        "hash_block": s.hash_block_size,
        "scheduler_block": s.scheduler_block_size,
        "retention": layout.DENSE if s.retention_interval is None else s.retention_interval,
        "unhashed_to_front": p.unhashed_to_front if s.enable_prefix_caching else p.caching_off_to_front,
        "stats_at_lookup": p.stats_at_lookup,
        "split_preempted": p.split_preempted,
        "virtual": virtual,
        "log": log,
        "shortest_block": shortest_block,
        "blocks_per_request": width,
    }


def _groups(s: Resolved, sizes: list[int]) -> tuple[npt.NDArray[np.void], int]:
    """The GROUP table and how many extra keys one block may carry."""
    table = layout.zeros(len(s.groups), layout.GROUP)
    in_flight = s.max_num_batched_tokens * (2 if s.async_scheduling else 1)
    kinds: dict[tuple[int, int], list[int]] = {}
    extra_keys = 0
    for g, (group, size) in enumerate(zip(s.groups, sizes, strict=True)):
        window = group.window or 0 if group.type == "sliding" else 0
        row = table[g]
        row.key = group_key(g)
        row.block_size, row.window, row.stride, row.next_in_kind = size, window, size // s.hash_block_size, -1
        if window:
            row.need = -(-(window - 1) // size)
            row.gate_cap = -(-min(window - 1 + in_flight, s.max_model_len) // size) + 1
        elif row.stride > 1:
            row.extra = 1
            extra_keys = max(extra_keys, int(row.stride) - 1)
        members = kinds.setdefault((window, size), [])
        if members:
            table[members[-1]].next_in_kind = g
        members.append(g)
    ordered = sorted(kinds.items(), key=lambda item: item[0][0] > 0)
    for k, ((window, _), members) in enumerate(ordered):
        table[k].kind_first, table[k].kind_full = members[0], window == 0
    return table, extra_keys


def _blocks(num_blocks: int, extra_keys: int) -> npt.NDArray[np.void]:
    entries = num_blocks * (1 + extra_keys)
    blocks = layout.zeros(entries, layout.BLOCK)
    order = np.arange(num_blocks, dtype=np.int32)
    blocks["free_next"][:num_blocks], blocks["free_prev"][:num_blocks] = np.roll(order, -1), np.roll(order, 1)
    if extra_keys:
        spare = np.arange(num_blocks + 1, entries + 1, dtype=np.int32)
        spare[-1] = 0
        blocks["free_next"][num_blocks:] = spare
    return blocks


def _requests(w: Workload, lora_path: bool) -> npt.NDArray[np.void]:
    """A copy of the workload's REQUEST rows as new, which are made once however many replicas there are."""
    made = _as_new.setdefault(w, {})
    if lora_path not in made:
        made[lora_path] = _new_requests(w, lora_path)
    octets = made[lora_path].view(np.uint8).copy()  # with the padding: equal states are equal bytes
    return octets.view(layout.REQUEST).view(np.recarray)


_as_new: WeakKeyDictionary[Workload, dict[bool, npt.NDArray[np.void]]] = WeakKeyDictionary()


def _new_requests(w: Workload, lora_path: bool) -> npt.NDArray[np.void]:
    n = len(w)
    reqs = layout.zeros(n, layout.REQUEST)
    reqs["arrive"], reqs["num_prompt"], reqs["num_output"] = w.arrive, w.num_prompt, w.num_output
    reqs["first_run"] = w.first_run[:-1]
    for name in ("scheduled", "first_token", "last_token", "finish"):
        reqs[name] = np.nan
    reqs["slot"], reqs["lora"], reqs["first_after"], reqs["next_after"] = -1, -1, -1, -1
    salt = w.salt if w.salt is not None else np.zeros(n, np.int32)
    lora = w.lora if w.lora is not None else np.full(n, -1, np.int32)
    pairs, which = np.unique(np.stack([salt, lora]), axis=1, return_inverse=True) if n else (np.zeros((2, 0), np.int32), np.zeros(0, int))
    names = [("", "") if a < 0 else (w.loras[a].name, w.loras[a].path if lora_path else "") for a in pairs[1].tolist()]
    roots = np.array([root_key(w.salts[k], *names[j]) for j, k in enumerate(pairs[0].tolist())], np.uint64)
    reqs["root"] = roots[which.reshape(-1)] if n else 0
    if w.lora is not None and w.loras:
        adapter = {i: k for k, i in enumerate(sorted({a.id for a in w.loras}))}
        ids = np.array([adapter[a.id] for a in w.loras], np.int32)
        reqs["lora"] = np.where(lora >= 0, ids[lora], -1)
    if w.skip_cache is not None:
        reqs["skip_cache"] = w.skip_cache
    if w.first_image is not None:
        reqs["first_image"], reqs["num_images"] = w.first_image[:-1], np.diff(w.first_image)
    _rank(w, reqs)
    if w.after is not None:
        _chain(w.after, reqs)
    return reqs


def _rank(w: Workload, reqs: npt.NDArray[np.void]) -> None:
    """What the priority queue compares besides the priority; a chained request's tie grows by its predecessor's end."""
    n = len(w)
    reqs["tie"] = w.tie if w.tie is not None else w.arrive + 1e-9 * np.arange(n)
    if w.priority is None:
        return
    reqs["priority"] = w.priority
    _rank_names(w, reqs)


def _rank_names(w: Workload, reqs: npt.NDArray[np.void]) -> None:
    n = len(w)
    if n:
        reqs["name_rank"][np.argsort(np.array([w.id(i) for i in range(n)]), kind="stable")] = np.arange(n)


def _chain(after: npt.NDArray[np.int32], reqs: npt.NDArray[np.void]) -> None:
    reqs["chained"] = after >= 0
    for i in np.flatnonzero(after >= 0)[::-1]:
        reqs["next_after"][i] = reqs["first_after"][after[i]]
        reqs["first_after"][after[i]] = i


def _expected_log(w: Workload, s: Resolved) -> tuple[int, int, int]:
    """Rows, blocks in runs and keys to reserve: address space only, pages are used as they are written."""
    tokens = w.num_prompt.astype(np.int64) + w.num_output
    blocks = int(sum((tokens // (g.block_size or s.block_size) + 1).sum() for g in s.groups))
    first_turn = 2 * s.max_running * len(s.groups) * (int(tokens.max(initial=1)) // min(g.block_size or 1 for g in s.groups) + 64)
    rows = blocks + 2 * int(w.num_output.sum()) + 16 * len(w)
    return rows + first_turn + (1 << 16), 3 * blocks + first_turn + (1 << 16), blocks + first_turn + (1 << 16)
