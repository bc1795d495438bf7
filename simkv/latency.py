"""Percentiles of what users feel, exact and without one number per token.

Most tokens come one engine step after the one before: such gaps are stored once per step with a count; the others one
by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simkv.events.turns import Turns

Part: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]

PERCENTILES = (50, 95, 99)
LEADING = 42
"""Bits of a number's fraction that are left out where numbers are alike: what is alike differs by a thousandth at most."""
FEW = 1000


def percentiles(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    """p50, p95, p99 of the values that exist (NaN is left out); ``None`` where there are none."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {f"p{p}": None for p in PERCENTILES}
    return {f"p{p}": float(v) for p, v in zip(PERCENTILES, np.percentile(known, PERCENTILES), strict=True)}


def weighted_percentiles(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> dict[str, float | None]:
    """The same of ``values[i]`` standing ``counts[i]`` times: equal to ``numpy.percentile`` of the written-out list."""
    return percentiles_of_parts([(values, counts)])


def percentiles_of_parts(parts: Sequence[Part]) -> dict[str, float | None]:
    """The same of all parts' ``(values, counts)`` together, none of which is copied as a whole."""
    total = sum(int(counts.sum()) for _, counts in parts)
    if not total:
        return {f"p{p}": None for p in PERCENTILES}
    places = [(total - 1) * (p / 100) for p in PERCENTILES]
    ranked = _ranked(parts, [rank for at in places for rank in (np.floor(at), np.ceil(at))])
    out: dict[str, float | None] = {}
    for p, at, low, high in zip(PERCENTILES, places, ranked[::2], ranked[1::2], strict=True):
        part = at - np.floor(at)
        # From the nearer end, as numpy does: the same to the last bit.
        out[f"p{p}"] = float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return out


def _ranked(parts: Sequence[Part], ranks: Sequence[float]) -> list[np.float64]:
    """The values at these places, from 0, of the sorted, written-out list.

    Sorting millions of gaps takes longer than simulating them: only those that share a value's leading bits are sorted.
    """
    there = [part for part in (_known(*part) for part in parts) if len(part[0])]
    least = min(float(values.min()) for values, _ in there)
    # The bits of negative numbers run the other way; few numbers are sorted sooner than told apart.
    alike = least < 0 or sum(len(values) for values, _ in there) < FEW
    first = int(np.float64(least).view(np.int64) >> LEADING)
    below: npt.NDArray[Any] = np.zeros(0)
    for values, counts in there:
        mine = np.bincount(np.zeros(len(values), np.int64) if alike else (values.view(np.int64) >> LEADING) - first, counts)
        longer, shorter = (below, mine) if len(below) > len(mine) else (mine, below)
        longer[: len(shorter)] += shorter
        below = longer
    below = np.cumsum(below)
    wanted = np.searchsorted(below, ranks, side="right")
    found: dict[int, Part] = {}
    for number in np.unique(wanted).tolist():
        low, high = (np.array([number, number + 1], np.int64) + first << LEADING).view(np.float64)
        chosen = there if alike else [(v[same], c[same]) for v, c in there for same in [(v >= low) & (v < high)]]
        values, counts = (np.concatenate(x) for x in zip(*chosen, strict=True))
        order = np.argsort(values, kind="stable")
        found[number] = values[order], np.cumsum(counts[order]) + (int(below[number - 1]) if number else 0)
    return [found[n][0][np.searchsorted(found[n][1], rank, side="right")] for n, rank in zip(wanted.tolist(), ranks, strict=True)]


def _known(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Part:
    """Without values that are no number, which stand 0 times."""
    known = ~np.isnan(values)
    return (values, counts) if known.all() else (values[known], counts[known])


def inter_token_gaps(turns: Turns, gaps: npt.NDArray[np.void]) -> Part:
    """``(gap in seconds, how many tokens)`` of a run (vllm:inter_token_latency_seconds)."""
    rows = turns.rows[turns.rows["schedule"] >= 0]
    last = np.cumsum(rows["turns"]) - 1
    inside = np.ones(int(rows["turns"].sum()), bool)
    inside[last] = False
    ends, counts = np.empty(len(inside)), np.repeat(rows["decode"].astype(np.int64), rows["turns"])
    ends[last], ends[inside], counts[last] = rows["end"], turns.ticks["end"], rows["cadence"]
    return np.concatenate([np.diff(ends), gaps["gap"]]), np.concatenate([counts[1:], np.ones(len(gaps), np.int64)])
