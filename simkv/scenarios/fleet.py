"""The figures of a fleet, under the names that one replica's have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkv.comparison.metrics import FINISHED, figures
from simkv.scenarios.figures import of_requests

if TYPE_CHECKING:
    from simkv.replay_fleet import FleetRun

_SUMS = ("prefill_tokens", "evicted_tokens", "preemptions")


def of_fleet(run: FleetRun) -> dict[str, float | None]:
    """Every figure of a fleet's run by key; ``None`` is no data.

    Requests, hits and latencies are the traffic's, without warming requests; computed and evicted tokens and preemptions are
    sums over the replicas, warming included; usage is the mean over the replicas.
    """
    mine, w = run.requests[: run.traffic], run.workload
    out: dict[str, float | None] = dict(of_requests(w, mine))
    parts = [figures(r) for r in run.replicas]
    for name in _SUMS:
        out[name] = _sum([p[name] for p in parts])
    usages = [p["usage_mean"] for p in parts if p["usage_mean"] is not None]
    out["usage_mean"] = float(np.mean(usages)) if usages else None
    peaks = [p["usage_peak"] for p in parts if p["usage_peak"] is not None]
    out["usage_peak"] = max(peaks) if peaks else None
    out["kv_pool_tokens"] = float(sum((r.resolved.num_gpu_blocks - 1) * r.resolved.block_size for r in run.replicas))
    itl = run.summary()["itl_s"]
    out |= {f"itl_{p}_s": value for p, value in itl.items()}
    return out | _throughput(run) | _balance(run)


def _throughput(run: FleetRun) -> dict[str, float | None]:
    mine = run.requests[: run.traffic]
    ends, starts = mine["finish"][np.isfinite(mine["finish"])], mine["arrive"][np.isfinite(mine["arrive"])]
    if not len(ends) or not len(starts) or run.workload.time_unit != "seconds":
        return {}
    span = float(ends.max() - starts.min())
    if span <= 0:
        return {}
    return {
        "output_tokens_per_s": float(mine["generated"].sum(dtype=np.int64)) / span,
        "requests_per_s": float(np.count_nonzero(mine["status"] == FINISHED)) / span,
        "makespan_s": span,
    }


def _balance(run: FleetRun) -> dict[str, float | None]:
    """How unevenly the replicas were used: of those that took traffic at all or stood ready to."""
    placed = run.placed[: run.traffic]
    served = placed >= 0
    count = np.bincount(placed[served], minlength=len(run.replicas))
    tokens = run.workload.num_prompt[: run.traffic].astype(np.int64) + run.requests["generated"][: run.traffic]
    work = np.bincount(placed[served], weights=tokens[served], minlength=len(run.replicas))
    total = int(count.sum())
    return {
        "busiest_share": float(count.max()) / total if total else None,
        "imbalance": float(work.max() / work.mean()) if total else None,
        "rerouted": int(np.count_nonzero(run.attempts[: run.traffic])),
    }


def _sum(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(sum(known)) if known else None
