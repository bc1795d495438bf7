"""Small workloads whose prompts share beginnings, for the routing policies: from content runs and from units written out."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from simkv.workload.workload import RUN, Lora, Workload, merge_runs, run_offsets

Units = list[tuple[Any, ...]]


def strangers(n: int, units: int) -> Workload:
    """``n`` prompts that have nothing in common."""
    zero, runs = np.zeros(n), np.zeros(n, RUN)
    runs["seed"], runs["n"] = np.arange(n), units
    return Workload("strangers", "test", zero, runs["n"], zero.astype(np.int32), np.arange(n + 1), runs)


def prompts(seed: int, n: int, longest: int = 40, namespaces: bool = False) -> Workload:
    """``n`` prompts: beginnings of a few documents, some of them continued by content of their own."""
    r = Random(seed)
    written = np.array([r.randrange(3) for _ in range(4 * longest)], np.int32)
    documents = [_document(r, longest, len(written)) for _ in range(3)]
    runs, owner, num_prompt = [], [], []
    for i in range(n):
        pieces = _beginning(r.choice(documents), r.randint(0, longest))
        if r.random() < 0.5:
            pieces = [*pieces, (100 + r.randrange(3), r.randrange(2), r.randint(1, longest // 2))]
        runs += pieces
        owner += [i] * len(pieces)
        num_prompt.append(sum(p[2] for p in pieces))
    merged, of = merge_runs(np.array(runs, RUN).reshape(-1), np.array(owner, np.int64))
    more: dict[str, Any] = {}
    if namespaces:
        more["salt"], more["salts"] = np.array([r.randrange(2) for _ in range(n)], np.int32), ("", "tenant")
        more["lora"], more["loras"] = np.array([r.randrange(2) - 1 for _ in range(n)], np.int32), (Lora("adapter", 1, "/a"),)
    lengths, zero = np.array(num_prompt, np.int32), np.zeros(n)
    return Workload("prompts", "test", zero, lengths, zero.astype(np.int32), run_offsets(of, n), merged, written, **more)


def _document(r: Random, longest: int, written: int) -> list[tuple[int, int, int]]:
    pieces: list[tuple[int, int, int]] = []
    while sum(p[2] for p in pieces) < longest:
        length = r.randint(1, max(1, longest // 3))
        pieces.append((-1 - r.randrange(written - length), 0, length) if r.random() < 0.4 else (r.randrange(3), r.randrange(5), length))
    return pieces


def _beginning(pieces: list[tuple[int, int, int]], units: int) -> list[tuple[int, int, int]]:
    kept = []
    for seed, start, length in pieces:
        if units <= 0:
            break
        kept.append((seed, start, min(length, units)))
        units -= length
    return kept


def units_of(workload: Workload, req: int) -> Units:
    """The units of a prompt, each as something to compare."""
    units: Units = []
    for run in workload.runs[workload.first_run[req] : workload.first_run[req + 1]]:
        seed, start, length = int(run["seed"]), int(run["start"]), int(run["n"])
        if seed < 0:
            units += [("written", int(t)) for t in workload.tokens[-1 - seed + start : -1 - seed + start + length]]
        else:
            units += [(seed, at) for at in range(start, start + length)]
    return units[: int(workload.num_prompt[req])]
