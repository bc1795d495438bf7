"""Percentiles of what users feel, exact and without one number per token.

Most tokens come one engine step after the one before: such gaps are stored once per step with a count; the others one
by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

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
    keep = counts > 0
    values, counts = values[keep], counts[keep]
    if not len(values):
        return {f"p{p}": None for p in PERCENTILES}
    places = [(int(counts.sum()) - 1) * (p / 100) for p in PERCENTILES]
    ranked = _ranked(values, counts, [rank for at in places for rank in (np.floor(at), np.ceil(at))])
    out: dict[str, float | None] = {}
    for p, at, low, high in zip(PERCENTILES, places, ranked[::2], ranked[1::2], strict=True):
        part = at - np.floor(at)
        # From the nearer end, as numpy does: the same to the last bit.
        out[f"p{p}"] = float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return out


def _ranked(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], ranks: Sequence[float]) -> list[np.float64]:
    """The values at these places, from 0, of the sorted, written-out list.

    Sorting millions of gaps takes longer than simulating them: only those that share a value's leading bits are sorted.
    """
    leading = values.view(np.int64) >> LEADING
    leading -= leading.min()
    if values.min() < 0 or len(values) < FEW:  # the bits of negative numbers run the other way
        leading[:] = 0
    below = np.cumsum(np.bincount(leading, counts))
    out: list[np.float64] = []
    for rank in ranks:
        part = np.searchsorted(below, rank, side="right")
        alike = np.flatnonzero(leading == part)
        alike = alike[np.argsort(values[alike], kind="stable")]
        upto = np.cumsum(counts[alike]) + (below[part - 1] if part else 0)
        out.append(values[alike[np.searchsorted(upto, rank, side="right")]])
    return out


def inter_token_gaps(steps: npt.NDArray[np.void], gaps: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """``(gap in seconds, how many tokens)`` of a run (vllm:inter_token_latency_seconds)."""
    called = steps["schedule"] >= 0
    regular = np.diff(steps["end"][called], prepend=np.nan)
    counts = steps["cadence"][called].astype(np.int64)
    return np.concatenate([regular, gaps["gap"]]), np.concatenate([counts, np.ones(len(gaps), np.int64)])
