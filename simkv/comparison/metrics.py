"""The figures that are compared, each with its definition, its unit and which way is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simkv.engine.step_time_layout import STEP_INDEX
from simkv.events.folds.host import host_history
from simkv.latency import PERCENTILES, percentiles, percentiles_of_gaps
from simkv.metrics.rolling import Rolling
from simkv.metrics.waste import waste
from simkv.replay import STATUS, Run

HIGHER, LOWER, NEITHER = 1, -1, 0
FINISHED = STATUS.index("finished")
SAME_POINTS, SAME_RELATIVE = 0.001, 0.01


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Args:
        key: its name in JSON and CSV.
        title: its name for people.
        unit: ``share``, ``tokens``, ``s``, ``tokens/s``, ``requests/s``, ``requests``, ``times``.
        better: HIGHER, LOWER or NEITHER.
        about: the definition.
    """

    key: str
    title: str
    unit: str
    better: int
    about: str


@dataclass(frozen=True, slots=True)
class Row:
    """A metric of every side; ``None`` where a run has no such figure."""

    metric: Metric
    values: tuple[float | None, ...]

    def change(self, side: int) -> float | None:
        """How much more than A: in points of share for shares (0.01 is one point), else relative to A (0.1 is 10 % more).

        ``None`` without one of the two, or relative to nothing.
        """
        a, b = self.values[0], self.values[side]
        if a is None or b is None:
            return None
        if self.metric.unit == "share" or a == b:
            return b - a
        return b / a - 1.0 if a else None

    def verdict(self, side: int) -> str:
        """``better``, ``worse`` or ``same`` than A; empty where it cannot be said. What differs by less than a tenth of a
        point, or by less than 1 %, is the same.
        """
        a, b, change = self.values[0], self.values[side], self.change(side)
        if a is None or b is None or self.metric.better == NEITHER:
            return ""
        if change is not None and abs(change) < (SAME_POINTS if self.metric.unit == "share" else SAME_RELATIVE):
            return "same"
        return "better" if (b > a) == (self.metric.better == HIGHER) else "worse"


def table(runs: tuple[Run, ...]) -> tuple[Row, ...]:
    """Every metric of the runs; one that no run has is left out, except those whose absence says something."""
    found = [{**figures(run), "waste": waste_share(run), **host_figures(run)} for run in runs]
    rows = (Row(m, tuple(f.get(m.key) for f in found)) for m in METRICS)
    return tuple(row for row in rows if any(v is not None for v in row.values) or row.metric.key not in OPTIONAL)


def figures(run: Run) -> dict[str, float | None]:
    """Every metric of one run by key; ``None`` is no data."""
    r, c, steps = run.requests, run.counters, run.steps
    admitted = np.isfinite(r["scheduled"])
    prompts = int(run.workload.num_prompt[admitted].sum(dtype=np.int64))
    hits = int(r["hit"][admitted].sum(dtype=np.int64))
    known = run.workload.prompts_have_content and prompts > 0
    usable = max(1, run.resolved.num_gpu_blocks - 1)
    out: dict[str, float | None] = {
        "hit_rate": hits / prompts if known else None,
        "cached_tokens": hits if known else None,
        "prefill_tokens": int(steps["prefill"].sum(dtype=np.int64)),
        "evicted_tokens": c["removed"] * run.resolved.block_size,
        "usage_mean": _finite(Rolling(steps, r, usable, 1.0).mean_usage),
        "usage_peak": float(1.0 - steps["free"].min() / usable) if len(steps) else None,
        "preemptions": c["preemptions"],
        "rejected": c["rejected"],
        "finished": c["finished"],
    }
    if run.step_time.kind == STEP_INDEX:
        return out
    done = r["status"] == FINISHED
    spreads: dict[str, dict[str, float | None]] = {
        "queue": percentiles(r["scheduled"] - r["arrive"]),
        "ttft": percentiles(r["first_token"] - r["arrive"]),
        "itl": percentiles_of_gaps([(run.turns, run.gaps)]),
        "e2e": percentiles((r["finish"] - r["arrive"])[done]),
    }
    out |= {f"{name}_{p}_s": value for name, spread in spreads.items() for p, value in spread.items()}
    span = _span(run)
    if span is not None:
        out |= {
            "output_tokens_per_s": float(r["generated"].sum(dtype=np.int64)) / span,
            "requests_per_s": float(np.count_nonzero(done)) / span,
            "makespan_s": span,
        }
    return out


_wastes: WeakKeyDictionary[Run, float | None] = WeakKeyDictionary()


def waste_share(run: Run) -> float | None:
    """Share of the KV memory held by requests that holds no token states, mean over time; ``None`` if the run does not tell. Kept."""
    if run not in _wastes:
        found = waste(run)
        shares = found.shares_of_held() if found is not None else None
        _wastes[run] = None if shares is None else 1.0 - shares["states"]
    return _wastes[run]


def host_figures(run: Run) -> dict[str, float | None]:
    """What came from a host tier; empty without one or without an event log."""
    if getattr(run.resolved, "offload", None) is None or run.log is None:
        return {}
    history, size = host_history(run.log), run.resolved.block_size
    missed = run.counters["queries"] - run.counters["hits"]
    return {
        "host_tokens": int(history.loading.sum()) * size,
        "host_hit_rate": int(history.loading_first.sum()) * size / missed if missed else None,
    }


def _span(run: Run) -> float | None:
    """Seconds from the first arrival to the last output token; ``None`` if there is none."""
    arrive = run.requests["arrive"][np.isfinite(run.requests["arrive"])]
    ends: npt.NDArray[np.float64] = run.requests["finish"][np.isfinite(run.requests["finish"])]
    if not len(arrive) or not len(ends):
        return None
    span = float(ends.max() - arrive.min())
    return span if span > 0 else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_LATENCIES: tuple[tuple[str, str, str], ...] = (
    ("queue", "Queue time", "arrival to first admission"),
    ("ttft", "TTFT", "arrival to first token"),
    ("itl", "Inter-token", "gap between two output tokens of a request, over all tokens"),
    ("e2e", "End to end", "arrival to last token, finished requests"),
)
_CACHE = (
    Metric("hit_rate", "Hit rate", "share", HIGHER, "prompt tokens cached on the GPU ÷ prompt tokens, at first admissions, whole run"),
    Metric("cached_tokens", "Cached prompt tokens", "tokens", HIGHER, "found in the cache at first admissions"),
    Metric("prefill_tokens", "Computed tokens", "tokens", LOWER, "tokens scheduled that are not decode, recomputation included"),
    Metric("evicted_tokens", "Evicted tokens", "tokens", LOWER, "keys that left the prefix cache × tokens per block"),
)
_HOST = (
    Metric("host_hit_rate", "Host hit rate", "share", HIGHER, "loaded from host memory ÷ prompt tokens not found on the device"),
    Metric("host_tokens", "Loaded from host", "tokens", NEITHER, "tokens whose copy from host memory to the GPU was ordered"),
)
_MEMORY = (
    Metric("usage_mean", "KV usage, mean", "share", NEITHER, "blocks of live requests ÷ usable blocks, over time"),
    Metric("usage_peak", "KV usage, peak", "share", NEITHER, "the same at its highest"),
    Metric(
        "waste",
        "Waste",
        "share",
        LOWER,
        "share of the KV memory held by requests that holds no token states (reserved, unused, rounding), over time",
    ),
)
_SCHEDULE = (
    Metric("preemptions", "Preemptions", "times", LOWER, "running requests thrown back (SGLang: retractions)"),
    Metric("rejected", "Rejected", "requests", LOWER, "longer than the engine accepts"),
    Metric("finished", "Finished", "requests", HIGHER, "requests that came to their end"),
)
_THROUGHPUT = (
    Metric("output_tokens_per_s", "Output tokens", "tokens/s", HIGHER, "generated tokens ÷ time from first arrival to last token"),
    Metric("requests_per_s", "Requests", "requests/s", HIGHER, "finished requests ÷ the same time"),
    Metric("makespan_s", "Whole run", "s", LOWER, "first arrival to last token"),
)
METRICS: tuple[Metric, ...] = (
    *_CACHE,
    *_HOST,
    *_MEMORY,
    *_SCHEDULE,
    *(
        Metric(f"{key}_p{p}_s", f"{title} p{p}", "s", LOWER, f"{p}th percentile: {about}")
        for key, title, about in _LATENCIES
        for p in PERCENTILES
    ),
    *_THROUGHPUT,
)
OPTIONAL = frozenset(m.key for m in METRICS if m in _HOST or m.unit in ("s", "tokens/s", "requests/s"))
"""Not shown where no run has them: workloads timed in steps have no seconds, most runs have no host tier."""
