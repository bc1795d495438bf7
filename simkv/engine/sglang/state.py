"""A replica's state from a workload and a configuration: every array sized, filled and linked.

Big arrays are reserved as address space; their pages are used as they are written.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang import layout
from simkv.engine.sglang.actions import clear_tree
from simkv.engine.sglang.compiled import entry
from simkv.engine.sglang.config import POLICY_PARAMETERS, SglangConfig
from simkv.engine.sglang.content import hash_tokens
from simkv.engine.sglang.policy import IN_BATCH_TOKENS
from simkv.engine.step_time_layout import STEP_INDEX, STEP_TIME
from simkv.engine.vllm.keys import mix, root_key
from simkv.engine.vllm.state import FIRST_STEPS, MANY_TOKENS, empty
from simkv.events.layout import EVENT, GAP, STEP, TICK
from simkv.workload.workload import Workload

INIT_RATIO, MIN_FACTOR, DECAY_STEPS = 0.7, 0.14, 600
"""SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR, SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS (environ.py, 0.5.23)."""


@entry
def start(e, cfg, c):  # type: ignore[no-untyped-def]
    """An empty tree over a full free list."""
    clear_tree(e, cfg, c)


@entry
def hash_heads(reqs, runs, tokens, n, out):  # type: ignore[no-untyped-def]
    """Hash of each request's namespace and first ``n`` tokens."""
    for i in range(reqs.size):
        if reqs[i].num_prompt + reqs[i].num_output >= n:
            where = mix(np.uint64(1), np.uint64(reqs[i].namespace))
            out[i] = hash_tokens(runs, tokens, np.int64(reqs[i].first_run), 0, n, where)


def build(
    workload: Workload, s: SglangConfig, step_time: npt.NDArray[np.void], log: bool, max_events: int | None
) -> tuple[Any, Any, layout.Engine]:
    """``(config, counters, state)``: the CONFIG and COUNTERS records and the arrays; ``None`` for max_events is no limit."""
    n, pages = len(workload), s.capacity // s.page_size
    rows = max(min(s.max_running_requests, n, pages), 1)
    reqs = requests(workload, s)
    longest = int((reqs["num_prompt"].astype(np.int64) + reqs["num_output"]).max(initial=1))
    width = min(-(-longest // s.page_size) + 2, pages + 2)
    config = layout.zeros(1, layout.CONFIG)
    for name, value in _config(s, pages, width, log, bool(step_time["mode"][0] != STEP_INDEX)).items():
        config[0][name] = value
    for name in STEP_TIME.names or ():
        config[0][name] = step_time[name][0]
    config[0].max_events = np.iinfo(np.int64).max if max_events is None else max_events
    counters = layout.zeros(1, layout.COUNTERS)
    c = counters[0]
    c.ratio, c.chunked, c.free_slots, c.free = config[0].ratio_init, layout.NONE, s.max_running_requests, pages
    heads = _heads(workload, reqs)
    first_log, blocks, keys = _expected_log(workload, s) if log else (1, 1, 1)
    first_steps = FIRST_STEPS * (32 if workload.num_output.sum() > MANY_TOKENS else 1)
    i4 = np.int32
    state = layout.Engine(
        nodes=layout.zeros(pages + 2, layout.NODE),
        table=np.zeros(layout.power_of_two(2 * pages + 2), np.uint64),
        heap=np.zeros(pages + 2, i4),
        arena=np.empty((2, 2 * pages + 2), i4),
        free=np.zeros(layout.power_of_two(pages + 1), i4),
        pending=np.zeros(pages + 1, i4),
        segments=layout.zeros(pages + 1, layout.SEGMENT),
        victims=layout.zeros(pages + 1, layout.VICTIM),
        evicted=np.zeros(pages + 1, i4),
        reqs=reqs,
        runs=workload.runs.view(np.recarray),
        tokens=workload.tokens,
        images=workload.images.view(np.recarray),
        actions=workload.actions.view(np.recarray),
        queue=layout.zeros(2 * n + 2, layout.QUEUE),
        heads=np.zeros(heads + 1, np.int64),
        running=np.zeros(2 * s.max_running_requests + 1, i4),
        free_slots=_slots(s.max_running_requests, rows),
        rows=np.empty((rows, width), i4),
        batch=layout.zeros(2 * s.max_running_requests + 1, layout.ROW),
        sorted=np.zeros(max(n, s.max_running_requests) + 1, i4),
        ordered=np.zeros(n + 1 if s.as_recorded else 1, i4),
        stack=np.zeros(pages + 2, i4),
        thrown_back=np.zeros(2 * s.max_running_requests + 1, i4),
        states=layout.zeros(n + s.max_running_requests + 1, layout.STATE),
        keys=np.empty(width if log else 1, np.uint64),
        random=np.array(random.Random(s.random_seed).getstate()[1], np.uint32),
        log=empty(first_log, EVENT),
        log_blocks=np.empty(blocks, i4),
        log_keys=np.empty(keys, np.uint64),
        steps=empty(first_steps, STEP),
        ticks=empty(4 * first_steps, TICK),
        gaps=empty(max(FIRST_STEPS, 4 * s.max_running_requests), GAP),
    )
    start(state, config[0], c)
    return config[0], c, state


def _slots(limit: int, rows: int) -> npt.NDArray[np.int32]:
    """Stack of free rows; those below the top that can never be reached (fewer requests than rows) do not exist."""
    out = np.zeros(limit + 1, np.int32)
    out[limit - rows : limit] = np.arange(rows - 1, -1, -1)
    return out


def _config(s: SglangConfig, pages: int, width: int, log: bool, virtual: bool) -> dict[str, float]:
    parameters = {**POLICY_PARAMETERS, **s.radix_eviction_policy_config}
    policy = s.schedule_policy
    aware = policy in ("lpm", "dfs-weight", "hrrn", "shortest-prefill-first")
    init = min(INIT_RATIO * s.schedule_conservativeness, 1.0)
    low = min(init * MIN_FACTOR, 1.0)
    return {
        "num_pages": pages,
        "page": s.page_size,
        "capacity": s.capacity,
        "max_running": s.max_running_requests,
        "max_prefill": s.max_prefill_tokens,
        "chunk": layout.NONE if s.chunked_prefill_size is None else s.chunked_prefill_size,
        "prefill_max_requests": layout.NONE if s.prefill_max_requests is None else s.prefill_max_requests,
        "policy": layout.FCFS if s.disable_radix_cache and aware else layout.SCHEDULE_POLICIES.index(policy),
        "eviction": layout.EVICTION_POLICIES.index(s.radix_eviction_policy),
        "mixed": s.enable_mixed_chunk,
        "priority": s.enable_priority_scheduling,
        "low_first": s.schedule_low_priority_values_first,
        "preemption": s.priority_preemption,
        "preemption_threshold": s.priority_scheduling_preemption_threshold,
        "retract_by_priority": s.retraction_policy == "priority",
        "caching": not s.disable_radix_cache,
        "protected_threshold": parameters["protected_threshold"],
        "tlru_threshold": parameters["threshold"],
        "tlru_estimate": parameters["next_prompt_estimate"],
        "checkpoint_mixed": s.as_recorded,
        "max_input": np.iinfo(np.int32).max if s.max_input_len is None else s.max_input_len - 1,
        "row_pages": width,
        "keep_order": s.as_recorded,
        "reset_ratio": not s.as_recorded,
        "virtual": virtual,
        "log": log,
        "ratio_init": init,
        "ratio_min": low,
        "ratio_decay": (init - low) / DECAY_STEPS,
    }


def requests(w: Workload, s: SglangConfig) -> npt.NDArray[np.void]:
    """The REQUEST table. max_new_tokens is clipped as at intake (Scheduler.init_req_max_new_tokens)."""
    n = len(w)
    reqs = layout.zeros(n, layout.REQUEST)
    reqs["arrive"], reqs["num_prompt"], reqs["first_run"] = w.arrive, w.num_prompt, w.first_run[:-1]
    prompt = w.num_prompt.astype(np.int64)
    wanted = w.num_output if w.max_new is None else w.max_new
    room = s.capacity - -(-prompt // s.page_size) * s.page_size - s.page_size - 1
    most = np.clip(np.clip(wanted, None, s.context_length - prompt - 1), None, room).clip(0)
    reqs["max_new"], reqs["num_output"] = most, np.minimum(w.num_output, np.maximum(most, 1))
    for name in ("scheduled", "first_token", "last_token", "finish"):
        reqs[name] = np.nan
    for name in ("slot", "lock", "first_after", "next_after", "head", "link"):
        reqs[name] = layout.NONE
    reqs["last_batch"] = -2
    reqs["namespace"], names = namespaces(w)
    roots = np.array([root_key(salt or "", "\0" if extra == "" else extra or "") for extra, salt in names], np.uint64)
    reqs["root"] = roots[reqs["namespace"]]
    if w.ignore_eos is not None:
        reqs["ignore_eos"] = w.ignore_eos
    if w.priority is not None:
        reqs["priority"] = w.priority
    if w.first_image is not None:
        reqs["first_image"], reqs["num_images"] = w.first_image[:-1], np.diff(w.first_image)
    reqs["name_rank"][np.argsort(np.array([w.id(i) for i in range(n)], object), kind="stable")] = np.arange(n)
    if w.after is not None:
        _chain(w.after, reqs)
    return reqs


def namespaces(w: Workload) -> tuple[npt.NDArray[np.int32], list[tuple[str | None, str | None]]]:
    """``(number of each request's namespace, what they are)``: extra_key with lora_id behind it, and cache_salt."""
    n = len(w)
    number = np.zeros(n, np.int32)
    found: dict[tuple[str | None, str | None], int] = {(None, None): 0}
    if w.salt is None and w.lora is None and w.extra_key is None:
        return number, list(found)
    for i in range(n):
        extra = w.extra_keys[w.extra_key[i]] if w.extra_key is not None and w.extra_key[i] >= 0 else None
        if w.lora is not None and w.lora[i] >= 0:
            extra = (extra or "") + w.loras[w.lora[i]].name
        salt = w.salts[w.salt[i]] or None if w.salt is not None else None
        number[i] = found.setdefault((extra, salt), len(found))
    return number, list(found)


def _heads(w: Workload, reqs: npt.NDArray[np.void]) -> int:
    """Number requests by their first tokens; returns how many kinds there are."""
    hashes = np.zeros(len(w), np.uint64)
    hash_heads(reqs, w.runs.view(np.recarray), w.tokens, IN_BATCH_TOKENS, hashes)
    long = reqs["num_prompt"].astype(np.int64) + reqs["num_output"] >= IN_BATCH_TOKENS
    kinds, which = np.unique(hashes[long], return_inverse=True)
    reqs["head"][long] = which.reshape(-1)
    return len(kinds)


def _chain(after: npt.NDArray[np.int32], reqs: npt.NDArray[np.void]) -> None:
    reqs["chained"] = after >= 0
    for i in np.flatnonzero(after >= 0)[::-1]:
        reqs["next_after"][i] = reqs["first_after"][after[i]]
        reqs["first_after"][after[i]] = i


def _expected_log(w: Workload, s: SglangConfig) -> tuple[int, int, int]:
    """Rows, blocks in runs and keys to reserve: address space only, pages are used as they are written."""
    pages = int(((w.num_prompt.astype(np.int64) + w.num_output) // s.page_size + 1).sum())
    pool = s.capacity // s.page_size
    rows = 2 * int(w.num_output.sum()) + 32 * len(w) + 32 * s.max_running_requests + (1 << 16)
    return rows + 8 * pool, 5 * pages + 8 * pool + (1 << 16), pages + 2 * pool + (1 << 16)
