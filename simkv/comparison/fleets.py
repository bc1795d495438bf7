"""Fleets on the same traffic side by side: hit rate and load, and which requests went where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simkv import text
from simkv.comparison.metrics import HIGHER, LOWER, NEITHER, Metric, Row
from simkv.diagnosis.ladder import Ladder
from simkv.diagnosis.locality import Locality
from simkv.metrics.fleet import busiest
from simkv.replay_fleet import FleetRun

FLEET_METRICS: tuple[Metric, ...] = (
    Metric("hit_rate", "Hit rate", "share", HIGHER, "prompt tokens cached ÷ prompt tokens, at first admissions, all replicas"),
    Metric("lost_routing", "… lost between replicas", "share", LOWER, "one endless cache, minus an endless cache per replica as routed"),
    Metric("lost_restarts", "… lost to restarts", "share", LOWER, "the same minus caches that restarts empty"),
    Metric("lost_engines", "… lost on the replicas", "share", LOWER, "the same minus what was found: capacity and timing"),
    Metric("prefill_tokens", "Computed tokens", "tokens", LOWER, "tokens scheduled that are not decode, recomputation included"),
    Metric("against", "Decisions against locality", "times", LOWER, "another live replica really held more of the prompt"),
    Metric("busiest", "Busiest replica", "factor", LOWER, "prompt tokens it computed ÷ the mean of all replicas"),
    Metric("evicted_blocks", "Evicted blocks", "times", LOWER, "keys that left the caches"),
    Metric("preemptions", "Preemptions", "times", LOWER, "running requests thrown back (SGLang: retractions)"),
    Metric("sent_again", "Sent again", "requests", LOWER, "requests whose replica died under them"),
    Metric("finished", "Finished", "requests", HIGHER, "requests that came to their end"),
    Metric("replicas", "Replicas", "times", NEITHER, "replicas there ever were"),
    *(Metric(f"queue_{p}_s", f"Queue time {p}", "s", LOWER, "arrival to first admission, all requests") for p in ("p50", "p95")),
    *(Metric(f"ttft_{p}_s", f"TTFT {p}", "s", LOWER, "arrival to first token, all requests") for p in ("p50", "p95", "p99")),
    Metric("ttft_worst_s", "TTFT p95, worst replica", "s", LOWER, "the same on the replica where it is highest"),
    Metric("ttft_best_s", "TTFT p95, best replica", "s", NEITHER, "the same on the replica where it is lowest"),
    *(Metric(f"itl_{p}_s", f"Inter-token {p}", "s", LOWER, "gap between two output tokens, over all tokens") for p in ("p50", "p95")),
    *(Metric(f"e2e_{p}_s", f"End to end {p}", "s", LOWER, "arrival to last token, finished requests") for p in ("p50", "p95")),
)
ONLY_IF_ANY = ("lost_restarts", "sent_again")
SAME_BALANCE = 1.1


@dataclass(frozen=True, eq=False)
class FleetSide:
    """One fleet of a comparison.

    Args:
        name: ``A`` … ``D``.
        label: what people wrote.
        run, ladder, locality: the run and what was found out about it.
    """

    name: str
    label: str
    run: FleetRun
    ladder: Ladder
    locality: Locality


@dataclass(frozen=True, eq=False)
class FleetComparison:
    """Up to four fleets on the same requests, in the same order."""

    sides: tuple[FleetSide, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every figure of every side."""
        found = [figures(side) for side in self.sides]
        rows = (Row(m, tuple(f.get(m.key) for f in found)) for m in FLEET_METRICS)
        return tuple(r for r in rows if any(r.values) or (r.metric.key not in ONLY_IF_ANY and any(v is not None for v in r.values)))

    def sentence(self, side: int) -> str:
        """How a side differs from A, on both axes."""
        a, b = (figures(self.sides[i]) for i in (0, side))
        return " ".join(part for part in (_hits(self.sides[0], self.sides[side]), _load(a, b), _judged(a, b)) if part)


def figures(side: FleetSide) -> dict[str, float | None]:
    """Every metric of one fleet by key; ``None`` is no data."""
    run, x, summary = side.run, side.ladder, side.run.summary()
    known = x.queries > 0 and x.has_content
    _, above = busiest(run)
    per = [r["ttft_s"]["p95"] for r in summary["per_replica"] if r["ttft_s"]["p95"] is not None]
    out: dict[str, float | None] = {
        "hit_rate": x.rate(x.delivered) if known else None,
        "lost_routing": x.rate(x.ceiling - x.routed) if known else None,
        "lost_restarts": x.rate(x.routed - x.kept) if known else None,
        "lost_engines": x.rate(x.kept - x.delivered) if known else None,
        "prefill_tokens": sum(int(r.turns.rows["prefill"].sum(dtype=np.int64)) for r in run.replicas),
        "against": len(side.locality.rows) if side.locality.known else None,
        "busiest": above if math.isfinite(above) else None,
        "evicted_blocks": summary["removed_blocks"],
        "preemptions": summary["preemptions"],
        "sent_again": summary["sent_again"],
        "finished": summary["finished"],
        "replicas": len(run.replicas),
        "ttft_worst_s": max(per, default=None),
        "ttft_best_s": min(per, default=None),
    }
    for key in ("queue", "ttft", "itl", "e2e"):
        out |= {f"{key}_{p}_s": summary[f"{key}_s"][p] for p in ("p50", "p95", "p99")}
    return out


def _hits(a: FleetSide, b: FleetSide) -> str:
    x, y = a.ladder, b.ladder
    if not (x.has_content and x.queries and y.queries):
        return "Without content there is no hit rate to compare."
    mine, theirs = y.rate(y.delivered), x.rate(x.delivered)
    moved = mine - theirs
    if abs(moved) < 0.0005:
        return f"finds as much of prompt tokens cached as {a.name} ({text.percent(mine)})."
    parts = {
        "between replicas": x.rate(x.ceiling - x.routed) - y.rate(y.ceiling - y.routed),
        "by restarts": x.rate(x.routed - x.kept) - y.rate(y.routed - y.kept),
        "on the replicas": x.rate(x.kept - x.delivered) - y.rate(y.kept - y.delivered),
    }
    told = [f"{_points(v)} {where}" for where, v in parts.items() if abs(v) >= 0.0005]
    how = told[0] if len(told) == 1 else f"{_points(moved)} ({', '.join(told)})" if told else _points(moved)
    return f"finds {text.percent(mine)} of prompt tokens cached where {a.name} finds {text.percent(theirs)}: {how}."


def _points(share: float) -> str:
    return f"{'+' if share >= 0 else '−'}{abs(share) * 100:.1f} points"


def _load(a: dict[str, float | None], b: dict[str, float | None]) -> str:
    if a["busiest"] is None or b["busiest"] is None:
        return ""
    said = f"Its busiest replica computes {b['busiest']:.1f}× the mean (A {a['busiest']:.1f}×)"
    if a["ttft_p95_s"] is not None and b["ttft_p95_s"] is not None:
        said += f"; TTFT p95 is {text.seconds(b['ttft_p95_s'])} (A {text.seconds(a['ttft_p95_s'])})"
    return said + "."


def _judged(a: dict[str, float | None], b: dict[str, float | None]) -> str:
    """Locality against balance, and what users feel."""
    keys = ("hit_rate", "busiest", "ttft_p95_s")
    if any(x[key] is None for x in (a, b) for key in keys):
        return ""
    hits = (b["hit_rate"] or 0) - (a["hit_rate"] or 0)
    skew = (b["busiest"] or 0) / max(a["busiest"] or 0, 1e-9)
    late = (b["ttft_p95_s"] or 0) / max(a["ttft_p95_s"] or 0, 1e-9)
    ends = "users wait longer" if late > 1.01 else "users wait less" if late < 0.99 else "users notice nothing"
    if hits > 0.005 and skew > SAME_BALANCE:
        return f"Balance is given for locality, and {ends}."
    if hits < -0.005 and skew < 1 / SAME_BALANCE:
        return f"Locality is given for balance, and {ends}."
    return ""


def elsewhere(a: FleetSide, b: FleetSide, most: int = 200) -> dict[str, list[Any]]:
    """The requests whose cached tokens differ most between two fleets, with the replicas that served them, as columns."""
    n = min(a.run.traffic, b.run.traffic)
    mine, theirs = (s.ladder.of_delivered[:n] for s in (b, a))
    moved = mine - theirs
    rows = np.argsort(-np.abs(moved), kind="stable")[:most]
    rows = rows[moved[rows] != 0]
    w = a.run.workload
    return {
        "request": [w.id(int(i)) for i in rows],
        "prompt": w.num_prompt[rows].tolist(),
        f"{a.name} on replica": a.run.placed[rows].tolist(),
        f"cached in {a.name}": theirs[rows].tolist(),
        f"{b.name} on replica": b.run.placed[rows].tolist(),
        f"cached in {b.name}": mine[rows].tolist(),
        "difference": moved[rows].tolist(),
    }
