"""A fleet over time: the same figures for each replica, in bins of equal length. NaN where nothing was measured, never 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.events.fleet_log import OPERATION_KINDS
from simkv.metrics.rolling import ratio
from simkv.replay_fleet import FleetRun

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]
RATES = ("hit_rate", "prefill_tokens_per_s", "evictions_per_s", "ttft_p95", "requests")
GAUGES = ("running", "waiting", "usage")


@dataclass(frozen=True, eq=False)
class FleetSeries:
    """Figures per replica and bin, each of shape ``[replicas, bins]``, and of all together, shape ``[bins]``.

    Args:
        edges: ends of the bins, in simulated seconds (steps in step mode), shape ``[bins + 1]``.
        of: ``hit_rate`` hits ÷ queries of the bin, ``prefill_tokens_per_s`` prompt tokens computed, ``evictions_per_s`` keys,
            ``ttft_p95`` over first tokens of the bin, ``requests`` sent there in the bin; at the bin's end ``running``,
            ``waiting`` and ``usage`` (blocks of live requests ÷ usable blocks).
        total: ``hit_rate``, ``ttft_p95``, ``requests`` over all replicas.
    """

    edges: F8
    of: dict[str, F8]
    total: dict[str, F8]

    @property
    def bin_s(self) -> float:
        """Length of a bin."""
        return float(self.edges[1] - self.edges[0])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of a replica's life in which it is not simply there: ``absent``, ``draining``, ``down`` or ``warming``."""

    replica: int
    start: float
    end: float
    state: str


def fleet_series(run: FleetRun, bins: int = 120, end_s: float | None = None) -> FleetSeries:
    """The series of a finished or partial fleet run.

    Args:
        bins: how many.
        end_s: where the last one ends; default: with the run.
    """
    edges = np.linspace(0.0, max(float(run.end_time_s if end_s is None else end_s), 1e-9), bins + 1)
    replicas = len(run.replicas)
    of = {name: np.full((replicas, bins), np.nan) for name in (*RATES, *GAUGES)}
    hits, queries = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    for r in range(replicas):
        one = run.replica(r)
        steps = one.turns.rows  # turns that share a row look up and evict nothing after the first, and their gauges are equal
        if not len(steps):
            continue
        at = _bin(steps["time"], edges)
        own_hits, own_queries, prefill, removed = (
            np.bincount(at, steps[name], bins).astype(np.int64) for name in ("hits", "queries", "prefill", "removed")
        )
        if run.workload.prompts_have_content:
            of["hit_rate"][r] = ratio(own_hits, own_queries)
            hits += own_hits
            queries += own_queries
        width = edges[1] - edges[0]
        of["prefill_tokens_per_s"][r], of["evictions_per_s"][r] = prefill / width, removed / width
        last = np.searchsorted(steps["time"], edges[1:], side="right") - 1
        busy = (last >= 0) & (steps["end"][last] >= edges[1:] - width)
        for name, values in (
            ("running", steps["running"]),
            ("waiting", steps["waiting"]),
            ("usage", 1.0 - steps["free"] / max(one.resolved.num_gpu_blocks - 1, 1)),
        ):
            of[name][r] = np.where(busy, values[last], 0.0)
    ttft = run.requests["first_token"] - run.requests["arrive"]
    known = np.isfinite(ttft) & (run.placed >= 0)
    moment = _bin(run.requests["first_token"][known], edges)
    of["ttft_p95"] = _p95(run.placed[known] * bins + moment, ttft[known], replicas * bins).reshape(replicas, bins)
    of["requests"] = _sent(run, edges)
    for stretch in absences(run):
        if stretch.state in ("absent", "down"):
            gone = (edges[:-1] >= stretch.start) & (edges[1:] <= stretch.end)
            for name in (*GAUGES, "prefill_tokens_per_s", "evictions_per_s", "requests"):
                of[name][stretch.replica, gone] = np.nan
    total = {"hit_rate": ratio(hits, queries), "ttft_p95": _p95(moment, ttft[known], bins), "requests": np.nansum(of["requests"], axis=0)}
    return FleetSeries(edges, of, total)


def absences(run: FleetRun) -> list[Stretch]:
    """From the operations: when each replica was not there, took nothing new, or was down."""
    out: list[Stretch] = []
    end = max(float(run.end_time_s), 0.0)
    open_ = dict.fromkeys(range(run.fleet.replicas, len(run.replicas)), (0.0, "absent"))
    state_of = {"draining": "draining", "failed": "down", "restarting": "down", "removed": "absent"}
    for row in run.operations:
        kind, r, at = OPERATION_KINDS[int(row["kind"])], int(row["replica"]), float(row["time"])
        if kind in ("warmed", "added") and r not in open_:
            continue
        if kind == "warmed":
            continue
        if r in open_:
            since, state = open_.pop(r)
            if at > since:
                out.append(Stretch(r, since, at, state))
        if kind in state_of:
            open_[r] = (at, state_of[kind])
        elif kind == "added":
            open_[r] = (at, "down")
    out += [Stretch(r, since, max(end, since), state) for r, (since, state) in open_.items()]
    return sorted(out, key=lambda s: (s.replica, s.start))


def busiest(run: FleetRun) -> tuple[int, float]:
    """The replica that computed most prompt tokens, and how many times the mean of all replicas that is; NaN if none was."""
    served = (run.placed >= 0) & np.isfinite(run.requests["scheduled"])
    prompts = (run.workload.num_prompt - run.requests["hit"])[served]
    computed = np.bincount(run.placed[served], prompts, len(run.replicas))
    return int(np.argmax(computed)), float(computed.max() / computed.mean()) if computed.any() else np.nan


def _sent(run: FleetRun, edges: F8) -> F8:
    """Decisions per replica and bin."""
    bins = len(edges) - 1
    if not len(run.decisions):
        return np.zeros((len(run.replicas), bins))
    cell = run.decisions["worker"].astype(np.int64) * bins + _bin(run.decisions["time"], edges)
    return np.bincount(cell, minlength=len(run.replicas) * bins).astype(np.float64).reshape(len(run.replicas), bins)


def _bin(time: npt.NDArray[np.float64], edges: F8) -> I8:
    bins = len(edges) - 1
    found: I8 = np.clip((np.asarray(time, np.float64) / (edges[-1] / bins)).astype(np.int64), 0, bins - 1)
    return found


def _p95(cell: I8, values: F8, cells: int) -> F8:
    """95th percentile (nearest rank) of the values of each cell; NaN where there is none."""
    order = np.lexsort((values, cell))
    cell, values = cell[order], values[order]
    count = np.bincount(cell, minlength=cells)
    first = np.cumsum(count) - count
    out = np.full(cells, np.nan)
    some = count > 0
    out[some] = values[first[some] + np.ceil(0.95 * count[some]).astype(np.int64) - 1]
    return out
