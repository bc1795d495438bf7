"""Percentiles of what users feel, exact and without one number per token.

Most tokens come one engine step after the one before: such gaps are stored once per step with a count; the others one
by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simkv.events.gaps import LEADING, each_gap, extent
from simkv.events.turns import Turns

Part: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]

PERCENTILES = (50, 95, 99)
FEW = 1000


def percentiles(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    """p50, p95, p99 of the values that exist (NaN is left out); ``None`` where there are none."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {f"p{p}": None for p in PERCENTILES}
    return {f"p{p}": float(v) for p, v in zip(PERCENTILES, np.percentile(known, PERCENTILES), strict=True)}


def percentiles_of_parts(parts: Sequence[Part]) -> dict[str, float | None]:
    """The same of all parts together: ``values[i]`` stands ``counts[i]`` times. Equal to ``numpy.percentile`` of the written-out list."""
    there = [part for part in (_known(*part) for part in parts) if len(part[0])]
    return _percentiles_of(sum(int(counts.sum()) for _, counts in there), lambda ranks: _ranked(there, ranks))


def percentiles_of_gaps(runs: Sequence[tuple[Turns, npt.NDArray[np.void]]]) -> dict[str, float | None]:
    """The same of the inter-token gaps of all runs together: each its turns and its GAP rows."""
    tables = [tuple(map(_read_only, (turns.rows, turns.ticks, gaps))) for turns, gaps in runs]
    totals, least, most = zip(*(extent(*table) for table in tables), strict=True)
    if min(least) < 0 or sum(len(turns) for turns, _ in runs) < FEW:
        return percentiles_of_parts([inter_token_gaps(turns, gaps) for turns, gaps in runs])
    return _percentiles_of(sum(totals), lambda ranks: _ranked_gaps(tables, min(least), max(most), ranks))


def _percentiles_of(total: int, ranked: Callable[[Sequence[float]], Sequence[Any]]) -> dict[str, float | None]:
    """From the values at the places, from 0, of a sorted list of ``total``."""
    if not total:
        return {f"p{p}": None for p in PERCENTILES}
    places = [(total - 1) * (p / 100) for p in PERCENTILES]
    found = ranked([rank for at in places for rank in (np.floor(at), np.ceil(at))])
    out: dict[str, float | None] = {}
    for p, at, low, high in zip(PERCENTILES, places, found[::2], found[1::2], strict=True):
        part = at - np.floor(at)
        # From the nearer end, as numpy does: the same to the last bit.
        out[f"p{p}"] = float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return out


def _ranked(there: Sequence[Part], ranks: Sequence[float]) -> list[np.float64]:
    """The values at these places, from 0, of the sorted, written-out list.

    Sorting millions of gaps takes longer than simulating them: only those that share a value's leading bits are sorted.
    """
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
    return _among_alike(
        below,
        first,
        ranks,
        lambda low, high: there if alike else [(v[same], c[same]) for v, c in there for same in [(v >= low) & (v < high)]],
    )


def _ranked_gaps(tables: Sequence[Any], least: float, most: float, ranks: Sequence[float]) -> list[np.float64]:
    """The same of gaps, none of them negative, where they lie: STEP, TICK and GAP rows of each run."""
    first, last = (int(np.float64(x).view(np.int64) >> LEADING) for x in (least, most))
    bins, room = np.zeros(last - first + 1, np.int64), sum(len(rows) for table in tables for rows in table)
    values, counts = np.empty(room), np.empty(room, np.int64)
    for table in tables:
        each_gap(*table, bins, first, 0.0, 0.0, values, counts)

    def between(low: float, high: float) -> list[Part]:
        n = 0
        for table in tables:
            n += each_gap(*table, bins[:0], first, low, high, values[n:], counts[n:])
        return [(values[:n], counts[:n])]

    return _among_alike(bins, first, ranks, between)


def _among_alike(
    alike: npt.NDArray[Any], first: int, ranks: Sequence[float], between: Callable[[float, float], Sequence[Part]]
) -> list[np.float64]:
    """The values at these places, from how many are alike (leading bits from ``first`` on), and those from a bound to before another."""
    below = np.cumsum(alike)
    wanted = np.searchsorted(below, ranks, side="right")
    found: dict[int, Part] = {}
    for number in np.unique(wanted).tolist():
        low, high = (np.array([number, number + 1], np.int64) + first << LEADING).view(np.float64)
        values, counts = (np.concatenate(x) for x in zip(*between(low, high), strict=True))
        order = np.argsort(values, kind="stable")
        found[number] = values[order], np.cumsum(counts[order]) + (int(below[number - 1]) if number else 0)
    return [found[n][0][np.searchsorted(found[n][1], rank, side="right")] for n, rank in zip(wanted.tolist(), ranks, strict=True)]


def _known(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Part:
    """Without values that are no number, which stand 0 times."""
    known = ~np.isnan(values)
    return (values, counts) if known.all() else (values[known], counts[known])


def _read_only(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Compiled code is made for arrays that can be written and for others: always the latter."""
    view = rows.view()
    view.setflags(write=False)
    return view


def inter_token_gaps(turns: Turns, gaps: npt.NDArray[np.void]) -> Part:
    """``(gap in seconds, how many tokens)`` of a run (vllm:inter_token_latency_seconds)."""
    rows = turns.rows[turns.rows["schedule"] >= 0]
    last = np.cumsum(rows["turns"]) - 1
    inside = np.ones(int(rows["turns"].sum()), bool)
    inside[last] = False
    ends, counts = np.empty(len(inside)), np.repeat(rows["decode"].astype(np.int64), rows["turns"])
    ends[last], ends[inside], counts[last] = rows["end"], turns.ticks["end"], rows["cadence"]
    return np.concatenate([np.diff(ends), gaps["gap"]]), np.concatenate([counts[1:], np.ones(len(gaps), np.int64)])
