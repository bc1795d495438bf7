"""What the figures of a scenario are drawn from: the same for one replica and for a fleet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.replay import Run
from simkv.scenarios.outcome import Outcome
from simkv.scenarios.scenario import Where

F8 = npt.NDArray[np.float64]
BINS = 40


def hit_rate_over_time(outcome: Outcome, end: float, bins: int = BINS) -> tuple[F8, F8]:
    """``(time, hit rate)`` of the requests admitted in each of ``bins`` equal stretches from 0 to ``end``; NaN where none was.

    Time is the middle of the stretch, in seconds (steps in step mode).
    """
    run = outcome.run
    r = run.requests if isinstance(run, Run) else run.requests[: run.traffic]
    at = r["scheduled"]
    known = np.isfinite(at)
    place = np.clip((at[known] / max(end, 1e-9) * bins).astype(np.int64), 0, bins - 1)
    prompts = np.bincount(place, run.workload.num_prompt[: len(r)][known], minlength=bins)
    hits = np.bincount(place, r["hit"][known], minlength=bins)
    rate = np.full(bins, np.nan)
    np.divide(hits, prompts, out=rate, where=prompts > 0)
    return (np.arange(bins) + 0.5) * end / bins, rate


def ttft_over_time(outcome: Outcome, end: float, bins: int = BINS) -> tuple[F8, F8]:
    """``(time, 95th percentile of the time to first token)`` of the requests that arrived in each stretch; NaN where none did.

    Seconds; all NaN for a workload that is timed in steps.
    """
    run = outcome.run
    r = run.requests if isinstance(run, Run) else run.requests[: run.traffic]
    time, late = (np.arange(bins) + 0.5) * end / bins, np.full(bins, np.nan)
    ttft = r["first_token"] - r["arrive"]
    known = np.isfinite(ttft)
    if run.workload.time_unit == "seconds":
        place = np.clip((r["arrive"][known] / max(end, 1e-9) * bins).astype(np.int64), 0, bins - 1)
        for b in np.unique(place).tolist():
            late[b] = np.percentile(ttft[known][place == b], 95)
    return time, late


def last_admission(outcome: Outcome) -> float:
    """When the last request was admitted; 0 if none was."""
    r = outcome.run.requests
    known = r["scheduled"][np.isfinite(r["scheduled"])]
    return float(known.max()) if len(known) else 0.0


def by_replica(outcome: Outcome) -> list[tuple[int, float, float | None, float | None]]:
    """``(replica, share of the requests, hit rate, TTFT p95 in seconds)`` of every replica of a fleet; empty for a single one."""
    run = outcome.run
    if isinstance(run, Run):
        return []
    rows = []
    for i in range(len(run.replicas)):
        where = Where(replica=i)
        served = outcome.figure("requests", where) or 0.0
        rows.append((i, served / max(run.traffic, 1), outcome.figure("hit_rate", where), outcome.figure("ttft_p95_s", where)))
    return rows
