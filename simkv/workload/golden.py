"""Our own format: prompts as content runs. The input of the recorded golden runs, and what users write by hand.

**JSON**: one object ``{name?, description?, config?, time?, requests: […], actions?: […]}``.

**simkv JSON lines**: the first line is a header ``{"simkv": 1, name?, description?, config?, time?}`` (any line with
``config`` or ``simkv`` and no ``prompt``), every further line a request or an action. The header may be left out.

* ``config``: the recorder's engine settings and *its* defaults (``ENGINE_DEFAULTS``); without ``config`` the settings stay the user's.
* ``time``: ``{"mode": "step"}`` (``arrive`` counts steps), ``{"mode": "virtual", "a": s, "b": s, "c": s}``
  (``arrive`` in seconds; a step lasts ``a + b × prefill tokens + c × decodes``) or ``{"mode": "seconds"}`` (``arrive`` in seconds,
  step time is the replay's). Without ``time`` whole numbers count steps, and the report says so; fractions are an error.
* request: ``{id, arrive, prompt, output_len, out_seed?, cache_salt?, lora?: {name, id, path?}, priority?, skip_reading_prefix_cache?}``,
  and beyond the recorder's: ``after`` (id of an earlier request: ``arrive`` counts from its end), ``tenant``, ``session``.
  ``prompt`` is a list of segments: ``[t0, t1, …]`` token ids, ``{seed, n, start?}`` content, ``{history: id}`` prompt and output of an
  earlier request. Output token ``j`` is token ``j`` of content ``out_seed``, by default ``1_000_000 + index``.
* host tier: ``offload`` in the header, ``kv_transfer_params`` of a request (simkv/workload/golden_offload.py).
* action: ``{at, op: "reset_prefix_cache", reset_running_requests?, reset_connector?}`` or ``{at, op: "abort", id}``.

Token ids of content are ``synthetic_tokens``. Where equal *values* could meet under different names (token ids written
out anywhere, or hashed blocks of fewer than 4 tokens) everything is written out, so equal values are equal content.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.workload.assemble import codes, order_of_arrival, take, take_lists
from simkv.workload.content import SEED_MASK, write_out
from simkv.workload.golden_actions import read_actions
from simkv.workload.golden_check import LARGEST_SEED, check_config, check_request, check_time, parts, steps_unless_told
from simkv.workload.golden_offload import LIMITS, offload_settings, transfer_limits
from simkv.workload.rows import Odd, Row, Tally, Where, number_column, whole_column
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import (
    F8,
    I8,
    RUN,
    Lora,
    Workload,
    merge_runs,
    run_offsets,
)

ENGINE_DEFAULTS: dict[str, Any] = {
    "block_size": 16,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 2048,
    "max_model_len": 8192,
    "enable_prefix_caching": True,
    "hash_algo": "sha256",
    "policy": "fcfs",
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "max_num_active_seqs": None,
    "async_scheduling": False,
    "max_loras": None,
    "sliding_window": None,
    "hybrid": None,
    "retention_interval": 0,
}
"""The recorder's defaults; they differ from vLLM's own in max_num_seqs, async_scheduling and max_model_len."""
RENAMED = {"hash_algo": "prefix_caching_hash_algo", "retention_interval": "prefix_cache_retention_interval"}
NOT_SETTINGS = ("hash_hex", "kv_events")
DEFAULT_OUT_SEED = 1_000_000
SMALLEST_BLOCK = 4
"""Tokens per hashed block from which two contents practically never agree by chance."""


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with the place of what cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    header, requests, lines, actions = parts(source, tally)
    time, config = check_time(header, source.name), check_config(header, source.name)
    with gc_paused():
        try:
            columns = _columns(requests, np.arange(len(requests)))
        except (Odd, KeyError, TypeError, ValueError, OverflowError, AttributeError):
            kept, good, seen = [], [], dict[str, int]()
            for i, (request, line) in enumerate(zip(requests, lines, strict=True)):
                try:
                    good.append(check_request(request, i, Where(source.name, line), seen))
                except InputError as e:
                    tally.bad(e)
                    continue
                kept.append(i)
            tally.needs_rows(len(kept))
            columns = _columns(good, np.array(kept))
    if "time" not in header:
        steps_unless_told(columns["ids"], columns["arrive"], tally)
    return _workload(source.name, header, time, config, columns, actions, options.limit, tally)


def engine_settings(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """A recorder's ``config`` as fields of EngineSettings, its defaults filled in; empty without a config."""
    if config is None:
        return {}
    full = {**ENGINE_DEFAULTS, **config}
    out = {RENAMED.get(k, k): v for k, v in full.items() if k not in NOT_SETTINGS}
    out["hybrid"] = tuple(full["hybrid"] or ())
    out["max_loras"] = full["max_loras"] or None
    return out


def _hash_block_size(config: Mapping[str, Any] | None) -> int:
    full = {**ENGINE_DEFAULTS, **(config or {})}
    return math.gcd(*(int(g.get("block_size") or full["block_size"]) for g in full["hybrid"] or [{}]))


def _columns(requests: list[Row], index: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Everything about the requests as arrays, in the order of the file; Odd or a KeyError if anything is not as it should be.

    ``pieces`` lists each request's runs as indices into ``runs`` (outputs first, then every segment of the file), so a
    history costs one index per run and no run is copied in Python.
    """
    n = len(requests)
    ids = [r["id"] for r in requests]
    if set(map(type, ids)) - {str} or len(set(ids)) < n:
        raise Odd
    extra = set(chain.from_iterable(requests))
    num_output = whole_column([r["output_len"] for r in requests], low=1)
    out_seed = DEFAULT_OUT_SEED + index
    if "out_seed" in extra:
        given = [r.get("out_seed", d) for r, d in zip(requests, out_seed.tolist(), strict=True)]
        out_seed = whole_column([s & SEED_MASK if type(s) is int and s >= 0 else None for s in given], high=SEED_MASK)
    seeds: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    tokens: list[int] = []
    written_out: list[int] = []
    pieces: dict[str, list[int]] = {}
    k = n
    for i, (rid, request) in enumerate(zip(ids, requests, strict=True)):
        own: list[int] = []
        for segment in request["prompt"]:
            if type(segment) is list:
                written_out.append(k)
                seeds.append(0)
                starts.append(len(tokens))
                lengths.append(len(segment))
                tokens += segment
            elif "history" in segment:
                own += pieces[segment["history"]]
                continue
            else:
                seeds.append(segment["seed"])
                starts.append(segment.get("start", 0))
                lengths.append(segment["n"])
            own.append(k)
            k += 1
        own.append(i)
        pieces[rid] = own
    runs = np.zeros(k, RUN)
    runs["seed"][:n], runs["n"][:n] = out_seed & SEED_MASK, num_output
    runs["seed"][n:] = whole_column(seeds, high=LARGEST_SEED) & SEED_MASK
    runs["seed"][written_out] = -1
    runs["start"][n:] = whole_column(starts)
    runs["n"][n:] = whole_column(lengths)
    counts = np.fromiter(map(len, pieces.values()), np.int64, n)
    flat = np.fromiter(chain.from_iterable(pieces.values()), np.int64, int(counts.sum()))
    num_prompt = np.add.reduceat(runs["n"].astype(np.int64)[flat], np.cumsum(counts) - counts) - num_output
    if num_prompt.min() < 1 or (num_prompt + num_output).max() > np.iinfo(np.int32).max:
        raise Odd
    columns: dict[str, Any] = {
        "ids": ids,
        "index": index,
        "arrive": number_column([r["arrive"] for r in requests]),
        "num_prompt": num_prompt,
        "num_output": num_output,
        "runs": runs,
        "flat": flat,
        "counts": counts,
        "tokens": whole_column(tokens).astype(np.int32),
    }
    if len(extra) > len(PLAIN_FIELDS & extra):
        columns |= _optional(requests, ids, extra)
    return columns


COLUMNS = ("salt", "tenant", "session", "lora", "priority", "skip_cache", *LIMITS)
PLAIN_FIELDS = {"id", "arrive", "prompt", "output_len", "out_seed"}


def _optional(requests: list[Row], ids: list[str], extra: set[str]) -> dict[str, Any]:
    """The columns only some workloads have."""
    out: dict[str, Any] = {}
    for field, names in (("cache_salt", "salts"), ("tenant", "tenants"), ("session", "sessions")):
        if field in extra:
            given = [r.get(field) for r in requests]
            if set(map(type, given)) - {str, type(None)}:
                raise Odd
            texts = [text or "" for text in given]
            first = ("",) if field == "cache_salt" else ()
            out[field.removeprefix("cache_")], out[names] = codes(texts, *first)
    if "lora" in extra:
        adapters: dict[Lora, int] = {}
        which = []
        for r in requests:
            lora = r.get("lora")
            adapter = None if lora is None else Lora(lora["name"], lora["id"], lora.get("path", "/lora/" + lora["name"]))
            if adapter and not (type(adapter.id) is int and 0 < adapter.id < 1 << 31 and type(adapter.path) is str):
                raise Odd
            which.append(adapters.setdefault(adapter, len(adapters)) if adapter else -1)
        out["lora"], out["loras"] = np.array(which, np.int32), tuple(adapters)
    if "priority" in extra:
        out["priority"] = whole_column([r.get("priority", 0) for r in requests], low=-(1 << 31)).astype(np.int32)
    if "skip_reading_prefix_cache" in extra:
        skips = [r.get("skip_reading_prefix_cache") for r in requests]
        if set(map(type, skips)) - {bool, type(None)}:
            raise Odd
        out["skip_cache"] = np.array(skips, bool)
    if "kv_transfer_params" in extra:
        out |= transfer_limits(requests)
    if "after" in extra:
        place = {rid: i for i, rid in enumerate(ids)}
        after = [-1 if (a := r.get("after")) is None else place[a] for r in requests]
        if any(a >= i for i, a in enumerate(after)):
            raise Odd
        out["after"] = np.array(after, np.int64)
    return out


def _workload(
    name: str,
    header: Row,
    time: dict[str, Any],
    config: dict[str, Any] | None,
    c: dict[str, Any],
    actions: list[tuple[int | None, Row]],
    limit: int | None,
    tally: Tally,
) -> Workload:
    runs, tokens = c["runs"], c["tokens"]
    if len(tokens) or _hash_block_size(config) < SMALLEST_BLOCK:
        runs, tokens = write_out(runs, tokens, name)
    arrive, after = c["arrive"], c.get("after")
    order = order_of_arrival(arrive if after is None else _earliest(arrive, after), limit, tally)
    flat, counts = take_lists(order, c["flat"], c["counts"])
    n = len(counts)
    merged, owner = merge_runs(runs[flat], np.repeat(np.arange(n), counts))
    optional: dict[str, Any] = {f: take(order, c[f])[0] for f in COLUMNS if f in c}
    optional |= {f: c[f] for f in ("salts", "tenants", "sessions", "loras") if f in c}
    place = np.full(len(arrive), -1) if order is not None else np.arange(n)
    if order is not None:
        place[order] = np.arange(n)
    if after is not None:
        mine = take(order, after)[0]
        optional["after"] = np.where(mine < 0, -1, place[mine]).astype(np.int32)
    arrive, index = take(order, arrive, c["index"])
    ids = c["ids"] if order is None else [c["ids"][i] for i in order.tolist()]
    return Workload(
        title[:200] if isinstance(title := header.get("name"), str) and title else name,
        "golden",
        arrive,
        take(order, c["num_prompt"])[0].astype(np.int32),
        take(order, c["num_output"])[0].astype(np.int32),
        run_offsets(owner, n),
        merged,
        tokens,
        ids,
        tie=arrive + 1e-6 * index,
        actions=read_actions(actions, dict(zip(c["ids"], place.tolist(), strict=True)), name, tally),
        time_unit="steps" if time["mode"] == "step" else "seconds",
        engine=engine_settings(config) | (offload_settings(header, name) if config is not None else {}),
        step_time={} if time["mode"] == "seconds" else time,
        report=tally.report(),
        **optional,
    )


def _earliest(arrive: F8, after: I8) -> F8:
    """A lower bound of each arrival in a closed loop: the sum of waits up the chain. Parents stand before children in the file."""
    out = arrive.copy()
    for i in np.flatnonzero(after >= 0).tolist():
        out[i] += out[after[i]]
    return out
