"""Warming requests: the prompts an operator sends to a fresh replica before it takes traffic.

What is worth warming is what was asked for before the moment of the operation: the shared beginnings of prompts whose
computation would have been saved most often. Nobody knows the future.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.chain import chain_keys
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import RUN, Workload

UNIT = 256
"""Tokens to which a shared beginning is rounded down."""
COPIED = (
    "salt",
    "lora",
    "priority",
    "skip_cache",
    "extra_key",
    "tenant",
    "session",
    "max_load_tokens",
    "max_offload_tokens",
    "ignore_eos",
)
"""Columns a warming request takes from the request whose prompt it is."""
LAST_REQUESTS = 2000
"""So many requests before the operation are looked at."""


def popular_prefixes(workload: Workload, before: float, count: int) -> list[tuple[int, int]]:
    """``(request, tokens)`` of the shared beginnings that saved most before a moment, most first.

    Args:
        before: only requests that arrived earlier (seconds).
        count: at most so many; none continues another.
    """
    arrived = np.flatnonzero(np.isfinite(workload.arrive) & (workload.arrive < before))[-LAST_REQUESTS:]
    times: dict[int, int] = {}
    chains: list[npt.NDArray[np.uint64]] = []
    for i in arrived.tolist():
        keys = chain_keys(workload, i, UNIT, upto=int(workload.num_prompt[i]) // UNIT)
        chains.append(keys)
        for key in keys.tolist():
            times[key] = times.get(key, 0) + 1
    best: dict[int, tuple[int, int, int]] = {}
    for i, keys in zip(arrived.tolist(), chains, strict=True):
        for depth, key in enumerate(keys.tolist(), 1):
            if times[key] > 1:
                best.setdefault(key, ((times[key] - 1) * depth * UNIT, i, depth))
    found: list[tuple[int, int]] = []
    covered: set[int] = set()
    position = {i: k for k, i in enumerate(arrived.tolist())}
    for _saved, i, depth in sorted(best.values(), key=lambda x: (-x[0], x[1], x[2])):
        chain = chains[position[i]][:depth].tolist()
        if chain[-1] in covered:
            continue
        covered.update(chain)
        found = [(r, n) for r, n in found if not _begins(chains[position[r]], n, chain)] + [(i, depth * UNIT)]
        if len(found) >= count:
            break
    return found[:count]


def _begins(other: npt.NDArray[np.uint64], tokens: int, chain: list[int]) -> bool:
    """Whether a shorter prefix found before is the beginning of this chain."""
    depth = tokens // UNIT
    return depth <= len(chain) and int(other[depth - 1]) == chain[depth - 1]


def with_warming(workload: Workload, fleet: FleetSettings) -> tuple[Workload, dict[int, list[list[int]]]]:
    """The workload with its warming requests behind it, which come when a replica starts, and their numbers.

    Returns:
        ``(workload, {operation: [requests of one start, …]})``.
    """
    extra: list[tuple[int, int]] = []
    rounds: dict[int, list[list[int]]] = {}
    for number, operation in enumerate(fleet.operations):
        if operation.warm == 0 or operation.kind == "remove":
            continue
        prefixes = popular_prefixes(workload, operation.at, operation.warm)
        starts = operation.count if operation.kind == "add" else 1 if operation.replica is not None else fleet.slots
        rounds[number] = []
        for _ in range(starts):
            first = len(workload) + len(extra)
            rounds[number].append(list(range(first, first + len(prefixes))))
            extra += prefixes
    return (_appended(workload, extra) if extra else workload), rounds


def _appended(w: Workload, extra: list[tuple[int, int]]) -> Workload:
    """The workload and behind it the first tokens of other requests' prompts, each with one token of output."""
    k, n = len(extra), len(w)
    runs, lengths = [w.runs], []
    for i, tokens in extra:
        cut = _first_tokens(w.runs[w.first_run[i] : w.first_run[i + 1]], tokens + 1)
        runs.append(cut)
        lengths.append(len(cut))
    source = np.array([i for i, _ in extra])
    columns: dict[str, Any] = {}
    for name in (
        "salt",
        "lora",
        "priority",
        "skip_cache",
        "extra_key",
        "tenant",
        "session",
        "max_load_tokens",
        "max_offload_tokens",
        "ignore_eos",
    ):
        column = getattr(w, name)
        if column is not None:
            columns[name] = np.concatenate([column, column[source]])
    if w.after is not None:
        columns["after"] = np.concatenate([w.after, np.full(k, -1, np.int32)])
    if w.tie is not None:
        columns["tie"] = np.concatenate([w.tie, np.full(k, w.tie.max(initial=0.0))])
    if w.max_new is not None:
        columns["max_new"] = np.concatenate([w.max_new, np.ones(k, w.max_new.dtype)])
    if w.first_image is not None:
        columns["first_image"] = np.concatenate([w.first_image, np.full(k, w.first_image[-1])])
    return replace(
        w,
        arrive=np.concatenate([w.arrive, np.full(k, np.inf)]),
        num_prompt=np.concatenate([w.num_prompt, np.array([t for _, t in extra], np.int32)]),
        num_output=np.concatenate([w.num_output, np.ones(k, np.int32)]),
        first_run=np.concatenate([w.first_run, w.first_run[-1] + np.cumsum(lengths)]),
        runs=np.concatenate(runs),
        ids=[*(w.id(i) for i in range(n)), *(f"warming-{j}" for j in range(k))],
        **columns,
    )


def _first_tokens(runs: npt.NDArray[np.void], tokens: int) -> npt.NDArray[np.void]:
    """The runs of the first so many tokens."""
    before = np.cumsum(runs["n"]) - runs["n"]
    out: npt.NDArray[np.void] = runs[before < tokens].astype(RUN)
    out["n"] = np.minimum(out["n"], tokens - before[: len(out)])
    return out
