"""What the page says about a moment: rates over the window before it, gauges at it (courses: simkv/metrics/series.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.ui import text

F8 = npt.NDArray[np.float64]
WINDOWS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)


@dataclass(eq=False)
class Timeline:
    """Windowed figures of one run.

    Args:
        steps: the run's step table (simkv.events.layout.STEP).
        requests: its result table; ``arrive`` and ``first_token`` are used.
        usable_blocks: blocks of the pool without the null block.
        time_unit: ``seconds`` or ``steps``.
    """

    steps: npt.NDArray[Any]
    requests: npt.NDArray[Any]
    usable_blocks: int
    time_unit: str = "seconds"

    @cached_property
    def window(self) -> float:
        """A round window of about a tenth of the run, at most 5 minutes: the ``last …`` of the cards."""
        if self.time_unit != "seconds":
            return float(max(1, round(self.duration / 10)))
        wanted = min(300.0, self.duration / 10)
        return float(min(WINDOWS, key=lambda w: abs(math.log((w + 1e-9) / (wanted + 1e-9)))))

    @property
    def window_name(self) -> str:
        """The window in words, part of every windowed figure's name."""
        return f"last {text.seconds(self.window)}" if self.time_unit == "seconds" else f"last {self.window:,.0f} steps"

    @cached_property
    def duration(self) -> float:
        """From the first step to the end of the last."""
        return float(self.steps["end"][-1] - self.steps["time"][0]) if len(self.steps) else 0.0

    @cached_property
    def time(self) -> F8:
        """Start of each step."""
        return np.ascontiguousarray(self.steps["time"], np.float64)

    def _sum(self, name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.steps[name], dtype=np.int64)])

    @cached_property
    def _queries(self) -> npt.NDArray[np.int64]:
        return self._sum("queries")

    @cached_property
    def _hits(self) -> npt.NDArray[np.int64]:
        return self._sum("hits")

    @cached_property
    def _removed(self) -> npt.NDArray[np.int64]:
        return self._sum("removed")

    @cached_property
    def _preempted(self) -> npt.NDArray[np.int64]:
        return self._sum("preempted")

    @cached_property
    def _first_tokens(self) -> tuple[F8, F8]:
        done = np.isfinite(self.requests["first_token"])
        at = self.requests["first_token"][done]
        order = np.argsort(at, kind="stable")
        return at[order], (at - self.requests["arrive"][done])[order]

    def _rows(self, step: int) -> tuple[int, int]:
        if not len(self.time):
            return 0, 0
        end = min(max(step, 0), len(self.time) - 1) + 1
        return int(np.searchsorted(self.time, self.time[end - 1] - self.window, side="right")), end

    def _elapsed(self, step: int) -> float:
        return max(min(self.window, float(self.time[step] - self.time[0])), 1e-9)

    def looked_up(self, step: int) -> int:
        """Prompt tokens looked up over the window that ends with ``step``."""
        a, b = self._rows(step)
        return int(self._queries[b] - self._queries[a])

    def hit_rate(self, step: int) -> float:
        """Token hit rate over the window that ends with ``step``; NaN where nothing was looked up."""
        a, b = self._rows(step)
        queries = int(self._queries[b] - self._queries[a])
        return float(self._hits[b] - self._hits[a]) / queries if queries else math.nan

    def usage(self, step: int) -> float:
        """Share of blocks held by live requests after ``step``; cached blocks nobody holds count as free."""
        return 1 - float(self.steps["free"][step]) / self.usable_blocks if len(self.steps) else math.nan

    def evictions(self, step: int) -> float:
        """Keys evicted per second (per step in step time) over the window."""
        if not len(self.time) or step < 1:
            return 0.0 if len(self.time) else math.nan
        a, b = self._rows(step)
        return float(self._removed[b] - self._removed[a]) / self._elapsed(step)

    def ttft(self, step: int, quantile: float = 0.95) -> float:
        """A percentile of time to first token over the requests whose first token came within the window; NaN if none did."""
        if not len(self.time):
            return math.nan
        at, ttft = self._first_tokens
        now = float(self.steps["end"][step])
        a, b = np.searchsorted(at, [now - self.window, now], side="right")
        return float(np.quantile(ttft[a:b], quantile)) if b > a else math.nan

    def preemptions(self, step: int) -> int:
        """Preemptions from the start of the run up to ``step``."""
        return int(self._preempted[self._rows(step)[1]])

    def samples(self, n: int = 40) -> npt.NDArray[np.int64]:
        """``n`` steps spread evenly over the simulated time, the first and the last included."""
        if not len(self.time):
            return np.zeros(0, np.int64)
        moments = np.linspace(self.time[0], self.time[-1], n)
        return np.unique(np.maximum(np.searchsorted(self.time, moments, side="right") - 1, 0))
