"""Workloads for the V0 engine: the recordings' own form, drawn at random or written in the test that needs it."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from simkv.engine.step_time import StepTime, step_index
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.engine.vllm_v0.parentage import Parentage
from simkv.engine.vllm_v0.resolve import resolve
from simkv.settings import V0Settings
from simkv.workload.workload import ABORT, ACTION, RUN, Workload

Case = dict[str, Any]
"""``config`` (settings by name), ``requests`` (id r0, r1, …; arrive, prompt, output, parents), ``aborts`` (at, id)."""


def workload(case: Case) -> Workload:
    """Prompts that share nothing."""
    requests = case["requests"]
    column = {name: np.array([r[name] for r in requests], np.int32) for name in ("prompt", "output")}
    runs = np.zeros(len(requests), RUN)
    runs["seed"], runs["n"] = np.arange(len(requests)), column["prompt"] + column["output"]
    aborts = [(a["at"], int(a["id"][1:]), ABORT) for a in case.get("aborts", [])]
    return Workload(
        "case",
        "test",
        np.array([float(r["arrive"]) for r in requests]),
        column["prompt"],
        column["output"],
        np.arange(len(requests) + 1),
        runs,
        actions=np.array(aborts, ACTION) if aborts else np.zeros(0, ACTION),
    )


def parentage(case: Case) -> Parentage | None:
    """The parents that stand in the requests; ``None`` if there are none."""
    if not any("parents" in r for r in case["requests"]):
        return None
    rows, first = list[list[int]](), [0]
    for r in case["requests"]:
        rows += r["parents"]
        first.append(len(rows))
    return Parentage(np.array(rows, np.int32), np.array(first, np.int64))


def engine(case: Case, step_time: StepTime | None = None, *, log: bool = True) -> V0Engine:
    """A replica, timed in steps unless said otherwise."""
    w = workload(case)
    settings = resolve(V0Settings(**case["config"]), w)
    return V0Engine(w, settings, (step_time or step_index()).record(), log=log, parents=parentage(case))


def case(requests: list[tuple[int, int, int]], parents: list[list[int]] | None = None, **config: Any) -> Case:
    """``(arrive, prompt, output)`` for each request; blocks of 4 and a pool of 100 unless ``config`` says otherwise."""
    full = {"block_size": 4, "num_gpu_blocks": 100, "num_cpu_blocks": 100, "max_model_len": 64, **config}
    rows = [{"id": f"r{i}", "arrive": a, "prompt": p, "output": o} for i, (a, p, o) in enumerate(requests)]
    if parents is not None:
        rows = [{**row, "parents": parents} for row in rows]
    return {"config": full, "requests": rows, "aborts": []}


def draw_case(r: Random, most_requests: int = 14) -> Case:
    """Small pools, so that groups are preempted, swapped and refused; beams that collapse often, seldom or never."""
    width = r.choice([1, 1, 2, 3, 4, 6, 8])
    beam = width > 1 and r.random() < 0.6
    size, blocks = r.choice([1, 2, 4, 4, 8, 16]), r.choice([6, 10, 16, 24, 40, 120, 260])
    longest = min(r.choice([16, 32, 64, 100]), blocks * size)
    seqs = r.choice([width, 2 * width, 4 * width + 1, 16 * width])
    config = {
        "best_of": width,
        "use_beam_search": beam,
        "block_size": size,
        "num_gpu_blocks": blocks,
        "num_cpu_blocks": r.choice([0, 10, 40, 400, 400, 400]),
        "max_num_seqs": seqs,
        "max_paddings": r.choice([0, 5, 30, 256]),
        "max_model_len": longest,
        "max_num_batched_tokens": max(longest, seqs, r.choice([16, 64, 256])),
    }
    requests: list[dict[str, Any]] = []
    at, n = 0, r.randint(1, most_requests)
    for i in range(n):
        at += r.choice([0, 0, 0, 1, 2, 5, 20])
        prompt, output = r.randint(1, min(longest + 2, r.choice([6, 20, 60]))), r.randint(1, r.choice([3, 10, 30]))
        request = {"id": f"r{i}", "arrive": at, "prompt": prompt, "output": output}
        if beam:
            stay = r.random()
            request["parents"] = [[k % width if r.random() < stay else r.randrange(width) for k in range(2 * width)] for _ in range(output)]
        requests.append(request)
    aborts = [{"at": r.randint(0, at + 20), "id": f"r{r.randrange(n)}"} for _ in range(r.choice([0, 0, 1, 3]))]
    return {"config": config, "requests": requests, "aborts": sorted(aborts, key=lambda a: a["at"])}
