"""The five figures of a fleet above the heat map."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from simkv.ui import text
from simkv.ui.cards import Card
from simkv.ui.fleet.shown import FleetShown

CURVE = 40
F8 = npt.NDArray[np.float64]


def cards(shown: FleetShown) -> list[Card]:
    """What the routing did to hits, to balance, to waiting."""
    x, series, summary = shown.ladder, shown.series, shown.summary
    top, above = shown.busiest
    per = summary["per_replica"]
    p95 = [r["ttft_s"]["p95"] for r in per if r["ttft_s"]["p95"] is not None]
    seconds = shown.time_unit == "seconds"
    ttft = summary["ttft_s"]["p95"] if seconds else None
    points = x.rate(x.ceiling) - x.rate(x.routed)
    share = f"{text.percent((x.ceiling - x.routed) / x.ceiling, 0)} of the reuse" if x.ceiling and x.has_content else text.NO_DATA
    return [
        Card(
            "Hit rate, whole run",
            text.percent(x.rate(x.delivered)),
            f"{text.percent(x.rate(x.ceiling))} in one endless cache",
            "Prompt tokens found cached at first admission ÷ prompt tokens, all replicas together. One endless cache: what the same"
            " requests, one after the other, would find if all replicas shared a cache that never evicts.",
            _curve(series.total["hit_rate"]),
        ),
        Card(
            "Lost between replicas",
            f"{points * 100:.1f} points" if math.isfinite(points) else text.NO_DATA,
            share,
            "Hit rate of one endless cache minus that of an endless cache per replica with the requests where they were routed:"
            " what no memory and no eviction policy can bring back, only another routing.",
            _curve(lost_over_time(shown)),
        ),
        Card(
            "Busiest replica",
            f"{above:.2f}× the mean" if math.isfinite(above) else text.NO_DATA,
            f"replica {top}",
            "Prompt tokens that the busiest replica had to compute ÷ the mean of all replicas. 1 is perfectly even.",
            _curve(_spread(series.of["prefill_tokens_per_s"])),
        ),
        Card(
            "TTFT p95, whole run",
            text.seconds(ttft),
            f"{text.seconds(min(p95))} to {text.seconds(max(p95))} by replica" if p95 and seconds else text.NO_DATA,
            "95th percentile of the time from arrival to first token, over all requests; below, of the best and of the worst replica.",
            _curve(series.total["ttft_p95"]) if seconds else (),
        ),
        _broken(shown),
    ]


def _broken(shown: FleetShown) -> Card:
    found = shown.locality
    label = "Decisions against locality"
    about = (
        "Decisions after which another live replica really held more of the prompt than the chosen one. Routers may mean it: load"
        " counts as well. The tab with this name lists them."
    )
    if not found.known:
        return Card(label, text.NO_DATA, "caches not observed", about, ())
    edges = shown.series.edges
    moments = shown.run.decisions["time"][found.rows]
    curve = np.histogram(moments, edges, weights=found.lost.astype(np.float64))[0]
    return Card(label, f"{len(found.rows):,}", f"{text.short_count(found.tokens)} tokens lost", about, _curve(curve))


def lost_over_time(shown: FleetShown) -> F8:
    """Hit rate lost between replicas by moment of admission, in bins; NaN where nobody was admitted."""
    x, edges = shown.ladder, shown.series.edges
    moment = shown.run.requests["scheduled"]
    known = x.counted & np.isfinite(moment)
    lost = np.histogram(moment[known], edges, weights=(x.of_ceiling - x.of_routed)[known].astype(np.float64))[0]
    asked = np.histogram(moment[known], edges, weights=x.of_queries[known].astype(np.float64))[0]
    out = np.full(len(lost), np.nan)
    np.divide(lost, asked, out=out, where=asked > 0)
    return out if x.has_content else np.full(len(lost), np.nan)


def _spread(values: F8) -> F8:
    """The largest ÷ the mean of each column; NaN where nothing was computed."""
    known = np.nan_to_num(values)
    there = np.maximum(np.isfinite(values).sum(axis=0), 1)
    mean = known.sum(axis=0) / there
    out = np.full(values.shape[1], np.nan)
    np.divide(known.max(axis=0), mean, out=out, where=mean > 0)
    return out


def _curve(values: F8) -> tuple[float, ...]:
    """The course at CURVE points (means of bins next to each other); empty if there is no line to draw."""
    parts = [part[np.isfinite(part)] for part in np.array_split(values, CURVE)]
    means = [float(part.mean()) if len(part) else math.nan for part in parts]
    return tuple(means) if sum(m == m for m in means) > 1 else ()
