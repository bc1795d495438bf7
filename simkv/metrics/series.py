"""A run as time series: a fold over its step rows and requests. NaN where nothing was measured, never 0."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.replay import Run

F8 = npt.NDArray[np.float64]
LOG_LINE_REQUESTS = 1000
"""vLLM's log line "Prefix cache hit rate" is over about this many requests (CachingMetrics, vllm/v1/metrics/stats.py)."""


def series(run: Run, points: int = 240, window: float | None = None) -> dict[str, F8]:
    """Figures at ``points`` moments spread evenly over the run, all of shape ``[points]``.

    Args:
        window: length of the rolling window in simulated seconds (steps in step mode); default a twentieth of the run.

    Returns:
        ``time`` and, at that moment:
        ``hit_rate`` hits / queries in tokens over the window, ``hit_rate_last_1000`` the engine's log line,
        ``hit_rate_total`` since start (the Prometheus counters); NaN if the source does not say what prompts share;
        ``usage`` blocks of live requests / usable blocks, ``cached_share`` free blocks that still hold content / usable blocks
        (at most: keys may stand on blocks in use); ``running``, ``waiting``; ``evictions_per_s``, ``stored_per_s``,
        ``prefill_tokens_per_s``, ``decode_tokens_per_s`` over the window; ``preemptions`` since start;
        ``ttft_p95`` of requests whose first token came in the window; ``window`` its length.
    """
    steps = run.steps
    if not len(steps):
        nothing = np.full(points, np.nan)
        return dict.fromkeys(("time", *_GAUGES, *_RATES, *_HIT_RATES, "preemptions", "ttft_p95", "window"), nothing)
    start, end = float(steps["time"][0]), float(max(steps["end"][-1], steps["time"][-1]))
    if end <= start:
        end = start + 1.0
    time = start + (end - start) * np.arange(1, points + 1) / points
    span = window if window is not None else (end - start) / 20
    at = np.searchsorted(steps["time"], time, side="right") - 1
    since = np.searchsorted(steps["time"], time - span, side="right") - 1
    length = np.minimum(span, time - start)
    usable = run.resolved.num_gpu_blocks - 1
    used = 1.0 - steps["free"] / usable
    out: dict[str, F8] = {
        "time": time,
        "window": np.full(points, span),
        "usage": used[at],
        "cached_share": np.minimum(steps["cached"][at] / usable, 1.0),
        "running": steps["running"][at].astype(float),
        "waiting": steps["waiting"][at].astype(float),
        "preemptions": np.cumsum(steps["preempted"])[at].astype(float),
    }
    for name, column in _RATES.items():
        total = np.concatenate([[0], np.cumsum(steps[column], dtype=np.int64)])
        out[name] = (total[at + 1] - total[since + 1]) / length
    known = run.workload.prompts_have_content
    out.update(_hit_rates(steps, at, since) if known else {name: np.full(points, np.nan) for name in _HIT_RATES})
    out["ttft_p95"] = _ttft(run, time, span)
    return out


_GAUGES = ("usage", "cached_share", "running", "waiting")
_HIT_RATES = ("hit_rate", "hit_rate_last_1000", "hit_rate_total")
_RATES = {"evictions_per_s": "removed", "stored_per_s": "stored", "prefill_tokens_per_s": "prefill", "decode_tokens_per_s": "decode"}


def _ratio(hits: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]) -> F8:
    out = np.full(len(hits), np.nan)
    np.divide(hits, queries, out=out, where=queries > 0)
    return out


def _hit_rates(steps: npt.NDArray[np.void], at: npt.NDArray[np.intp], since: npt.NDArray[np.intp]) -> dict[str, F8]:
    hits = np.concatenate([[0], np.cumsum(steps["hits"])])
    queries = np.concatenate([[0], np.cumsum(steps["queries"])])
    admitted = np.concatenate([[0], np.cumsum(steps["admitted"], dtype=np.int64)])
    before = np.searchsorted(admitted, admitted[at + 1] - LOG_LINE_REQUESTS, side="right") - 1
    before = np.maximum(before, 0)
    return {
        "hit_rate": _ratio(hits[at + 1] - hits[since + 1], queries[at + 1] - queries[since + 1]),
        "hit_rate_last_1000": _ratio(hits[at + 1] - hits[before], queries[at + 1] - queries[before]),
        "hit_rate_total": _ratio(hits[at + 1], queries[at + 1]),
    }


def _ttft(run: Run, time: F8, span: float) -> F8:
    r = run.requests
    known = np.isfinite(r["first_token"])
    order = np.argsort(r["first_token"][known], kind="stable")
    moment, ttft = r["first_token"][known][order], (r["first_token"] - r["arrive"])[known][order]
    low, high = np.searchsorted(moment, time - span, side="right"), np.searchsorted(moment, time, side="right")
    return np.array([np.percentile(ttft[a:b], 95) if b > a else np.nan for a, b in zip(low, high, strict=True)])
