"""Inter-token gaps counted where they lie, in the packed table of turns, without writing down any. Compiled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simkv import jit

_HERE = Path(__file__).parent
entry, _, _, inline = jit.decorators(_HERE)

LEADING = 42
"""Bits of a number's fraction that are left out where numbers are alike: what is alike differs by a thousandth at most."""


class Wanted(NamedTuple):
    """What to do with each gap: count it with those that are alike, or write it down if it lies in a range."""

    bins: npt.NDArray[np.int64]  # tokens by the leading bits of their gap, from ``first`` on; empty: write down
    first: int
    low: float  # gaps from here
    high: float  # to before here
    values: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


@inline
def note(wanted, n, gap, count):
    """Returns how many gaps are written down now."""
    if gap != gap:
        return n
    if wanted.bins.size > 0:
        wanted.bins[(np.float64(gap).view(np.int64) >> LEADING) - wanted.first] += count
    elif wanted.low <= gap < wanted.high:
        wanted.values[n], wanted.counts[n] = gap, count
        n += 1
    return n


@entry
def each_gap(rows, ticks, gaps, bins, first, low, high, values, counts):
    """All gaps of one run (``STEP``, ``TICK``, ``GAP``) as ``Wanted`` says. Returns how many were written down."""
    wanted = Wanted(bins, first, low, high, values, counts)
    n, tick, before = 0, 0, np.nan
    for r in range(rows.size):
        row = rows[r]
        if row.schedule < 0:
            continue
        for _ in range(row.turns - 1):
            end = ticks[tick].end
            n = note(wanted, n, end - before, np.int64(row.decode))
            before = end
            tick += 1
        n = note(wanted, n, row.end - before, np.int64(row.cadence))
        before = row.end
    for g in range(gaps.size):
        n = note(wanted, n, gaps[g].gap, 1)
    return n


@entry
def extent(rows, ticks, gaps):
    """``(tokens, least, greatest)`` of a run's gaps that are numbers; those of no token count for the last two as well."""
    total, least, most = np.int64(0), np.inf, -np.inf
    tick, before = 0, np.nan
    for r in range(rows.size):
        row = rows[r]
        if row.schedule < 0:
            continue
        for i in range(row.turns):
            inside = i < row.turns - 1
            end = ticks[tick].end if inside else row.end
            gap = end - before
            if gap == gap:
                total += np.int64(row.decode if inside else row.cadence)
                least, most = min(least, gap), max(most, gap)
            before = end
            tick += inside
    for g in range(gaps.size):
        gap = gaps[g].gap
        if gap == gap:
            total += 1
            least, most = min(least, gap), max(most, gap)
    return total, least, most
