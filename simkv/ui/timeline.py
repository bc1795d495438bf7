"""What the page says about a step: the window of its rates, and simkv/metrics/rolling.py asked at that step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.metrics.rolling import Moments, Rolling
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
        return f"last {text.seconds(self.window)}" if self.time_unit == "seconds" else f"last {text.counted(round(self.window), 'step')}"

    @cached_property
    def duration(self) -> float:
        """From the first step to the end of the last."""
        return float(self.steps["end"][-1] - self.steps["time"][0]) if len(self.steps) else 0.0

    @cached_property
    def time(self) -> F8:
        """Start of each step."""
        return np.ascontiguousarray(self.steps["time"], np.float64)

    @cached_property
    def rolling(self) -> Rolling:
        """What cards and curves are both made from."""
        return Rolling(self.steps, self.requests, self.usable_blocks, self.window)

    def _at(self, step: int) -> Moments | None:
        if not len(self.steps):
            return None
        return self.rolling.after(np.array([min(max(step, 0), len(self.steps) - 1)], np.int64))

    def looked_up(self, step: int) -> int:
        """Prompt tokens looked up over the window that ends with ``step``."""
        m = self._at(step)
        return int(self.rolling.sums("queries", m)[0]) if m else 0

    def hit_rate(self, step: int) -> float:
        """Token hit rate over the window that ends with ``step``; NaN where nothing was looked up."""
        m = self._at(step)
        return float(self.rolling.hit_rate(m)[0]) if m else math.nan

    def usage(self, step: int) -> float:
        """Share of blocks held by live requests after ``step``; cached blocks nobody holds count as free."""
        m = self._at(step)
        return float(self.rolling.usage(m)[0]) if m else math.nan

    def evictions(self, step: int) -> float:
        """Keys evicted per second (per step in step time) over the window; NaN at the first moment."""
        m = self._at(step)
        return float(self.rolling.rate("removed", m)[0]) if m else math.nan

    def ttft(self, step: int) -> float:
        """95th percentile of time to first token over the requests whose first token came within the window; NaN if none did."""
        m = self._at(step)
        return float(self.rolling.ttft(m)[0]) if m else math.nan

    def preemptions(self, step: int) -> int:
        """Preemptions from the start of the run up to ``step``."""
        m = self._at(step)
        return int(self.rolling.total("preempted")[m.end[0]]) if m else 0

    def samples(self, n: int = 40) -> npt.NDArray[np.int64]:
        """``n`` steps spread evenly over the simulated time, the first and the last included."""
        if not len(self.time):
            return np.zeros(0, np.int64)
        moments = np.linspace(self.time[0], self.time[-1], n)
        return np.unique(np.maximum(np.searchsorted(self.time, moments, side="right") - 1, 0))
