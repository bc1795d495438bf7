"""Percentiles of what users feel, exact and without one number per token.

Most tokens come one engine step after the one before: such gaps are stored once per step with a count; the others one
by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PERCENTILES = (50, 95, 99)


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
    order = np.argsort(values, kind="stable")
    values, last = values[order], np.cumsum(counts[order])
    out: dict[str, float | None] = {}
    for p in PERCENTILES:
        at = (last[-1] - 1) * (p / 100)
        low, high = (values[np.searchsorted(last, k, side="right")] for k in (np.floor(at), np.ceil(at)))
        part = at - np.floor(at)
        # From the nearer end, as numpy does: the same to the last bit.
        out[f"p{p}"] = float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return out


def inter_token_gaps(steps: npt.NDArray[np.void], gaps: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """``(gap in seconds, how many tokens)`` of a run (vllm:inter_token_latency_seconds)."""
    batches = steps[steps["schedule"] >= 0]
    regular = np.diff(batches["end"], prepend=np.nan)
    counts = batches["cadence"].astype(np.int64)
    return np.concatenate([regular, gaps["gap"]]), np.concatenate([counts, np.ones(len(gaps), np.int64)])
