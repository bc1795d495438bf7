"""Figures of a run at moments: rates over the window before each, gauges at it. The page's cards, its sparklines and every
chart are made from these, so that they cannot disagree. NaN where nothing was measured, never 0."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simkv.latency import PERCENTILES, percentiles

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]


class Moments(NamedTuple):
    """Moments of a run, each array of the same shape.

    Args:
        time: f8, simulated seconds (steps in step mode).
        first, end: the rows whose step began within the window that ends there: ``first … end-1``.
        seen: f8, up to when first tokens count: a step's come when it ends.
    """

    time: F8
    first: I8
    end: I8
    seen: F8


class Rolling:
    """A run's step rows and requests, ready to be asked.

    Args:
        steps: STEP[s] (simkv/events/layout.py).
        requests: ``arrive`` and ``first_token`` are used.
        usable_blocks: blocks of the pool without the null block.
        window: length of the window, as ``time``.
    """

    def __init__(self, steps: npt.NDArray[Any], requests: npt.NDArray[Any], usable_blocks: int, window: float) -> None:
        self.steps, self.requests, self.usable_blocks, self.window = steps, requests, usable_blocks, window
        self.time: F8 = np.ascontiguousarray(steps["time"], np.float64)
        self._totals: dict[str, I8] = {}

    def at(self, time: F8) -> Moments:
        """Any moments from the first step on."""
        end = np.searchsorted(self.time, time, side="right")
        return Moments(time, np.searchsorted(self.time, time - self.window, side="right"), end, time)

    def after(self, steps: npt.NDArray[np.int64]) -> Moments:
        """The moments of steps, each with everything that the step brought."""
        time = self.time[steps]
        return Moments(time, np.searchsorted(self.time, time - self.window, side="right"), steps + 1, self.steps["end"][steps])

    def total(self, column: str) -> I8:
        """Running total of a column of the step rows, 0 first: i8[s + 1]."""
        if column not in self._totals:
            self._totals[column] = np.concatenate([[0], np.cumsum(self.steps[column], dtype=np.int64)])
        return self._totals[column]

    def sums(self, column: str, m: Moments) -> I8:
        """A column's sum over the window."""
        total = self.total(column)
        return total[m.end] - total[m.first]

    def rate(self, column: str, m: Moments) -> F8:
        """The same per second (per step in step mode); at the start over what has passed of the window."""
        return self.per_time(self.sums(column, m), m)

    def per_time(self, sums: I8, m: Moments) -> F8:
        """Sums over the window per second (per step in step mode); NaN at the first moment."""
        passed = np.minimum(self.window, m.time - self.time[0])
        out = np.full(len(m.time), np.nan)
        np.divide(sums, passed, out=out, where=passed > 0)
        return out

    def hit_rate(self, m: Moments) -> F8:
        """Hits ÷ queries in tokens over the window."""
        return ratio(self.sums("hits", m), self.sums("queries", m))

    def usage(self, m: Moments) -> F8:
        """Share of blocks held by live requests; cached blocks nobody holds are free."""
        return 1.0 - self.steps["free"][m.end - 1] / self.usable_blocks

    @cached_property
    def mean_usage(self) -> float:
        """Usage over the run's time, not over its steps: a long step counts longer. While no step runs nobody holds a block."""
        if not len(self.time):
            return np.nan
        ends = np.asarray(self.steps["end"], np.float64)
        busy = np.maximum(np.minimum(ends, np.append(self.time[1:], ends[-1])) - self.time, 0.0)
        whole = max(float(ends[-1]), float(self.time[-1])) - float(self.time[0])
        used = 1.0 - self.steps["free"] / self.usable_blocks
        return float(np.dot(used, busy)) / whole if whole > 0 else float(used.mean())

    @cached_property
    def _first_tokens(self) -> tuple[F8, F8]:
        known = np.isfinite(self.requests["first_token"])
        moment = self.requests["first_token"][known]
        order = np.argsort(moment, kind="stable")
        return moment[order], (moment - self.requests["arrive"][known])[order]

    def ttft(self, m: Moments, percentile: int = 95) -> F8:
        """A percentile (50, 95, 99) of time to first token over requests whose first token came within the window."""
        assert percentile in PERCENTILES
        moment, ttft = self._first_tokens
        low, high = (np.searchsorted(moment, t, side="right").tolist() for t in (m.seen - self.window, m.seen))
        found = (percentiles(ttft[a:b])[f"p{percentile}"] for a, b in zip(low, high, strict=True))
        return np.array([np.nan if v is None else v for v in found], np.float64)


def ratio(hits: I8, queries: I8) -> F8:
    """Hits ÷ queries; NaN where nothing was looked up."""
    out = np.full(len(hits), np.nan)
    np.divide(hits, queries, out=out, where=queries > 0)
    return out
