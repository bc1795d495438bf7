"""A run as time series: a fold over its step rows and requests. NaN where nothing was measured, never 0."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.metrics.rolling import Moments, Rolling, ratio
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
    usable = run.resolved.num_gpu_blocks - 1
    rolling = Rolling(steps, run.requests, usable, span)
    m = rolling.at(time)
    at = m.end - 1
    out: dict[str, F8] = {
        "time": time,
        "window": np.full(points, span),
        "usage": rolling.usage(m),
        "cached_share": np.minimum(steps["cached"][at] / usable, 1.0),
        "running": steps["running"][at].astype(float),
        "waiting": steps["waiting"][at].astype(float),
        "preemptions": rolling.total("preempted")[m.end].astype(float),
        **{name: rolling.rate(column, m) for name, column in _RATES.items()},
        "ttft_p95": rolling.ttft(m),
    }
    known = run.workload.prompts_have_content
    out.update(_hit_rates(rolling, m) if known else {name: np.full(points, np.nan) for name in _HIT_RATES})
    return out


_GAUGES = ("usage", "cached_share", "running", "waiting")
_HIT_RATES = ("hit_rate", "hit_rate_last_1000", "hit_rate_total")
_RATES = {"evictions_per_s": "removed", "stored_per_s": "stored", "prefill_tokens_per_s": "prefill", "decode_tokens_per_s": "decode"}


def _hit_rates(rolling: Rolling, m: Moments) -> dict[str, F8]:
    hits, queries, admitted = rolling.total("hits"), rolling.total("queries"), rolling.total("admitted")
    before = np.maximum(np.searchsorted(admitted, admitted[m.end] - LOG_LINE_REQUESTS, side="right") - 1, 0)
    return {
        "hit_rate": rolling.hit_rate(m),
        "hit_rate_last_1000": ratio(hits[m.end] - hits[before], queries[m.end] - queries[before]),
        "hit_rate_total": ratio(hits[m.end], queries[m.end]),
    }
