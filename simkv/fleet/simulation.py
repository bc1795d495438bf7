"""The simulated clock: SimPy wakes each replica at moments of the outside world, the compiled core does the steps.

A replica advances many engine steps inside one call, up to the next outside event or the next report, so SimPy's cost
does not grow with steps or blocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol

import simpy

FIRST_SLICE = 1 / 256
LONGEST_CALL_S, SHORTEST_CALL_S = 0.2, 0.05


class Replica(Protocol):
    """What a fleet needs of an engine."""

    def advance(self, until: float) -> int:
        """Run until a moment of simulated time; says why it stopped."""


class Simulation:
    """One engine replica over one workload.

    Args:
        replica: the engine.
        going_on: the value of ``advance`` that means "time reached"; anything else ends the run.
        horizon: about how long the workload is, in simulated time; sizes the first slice only.
        report: called after each slice; returning False cancels. Without it the run is one slice.
    """

    def __init__(self, replica: Replica, going_on: int, horizon: float, report: Callable[[], bool] | None) -> None:
        self.replica, self.going_on, self.report = replica, going_on, report
        self.slice = max(horizon * FIRST_SLICE, 1e-3)
        self.outcome = going_on
        self.cancelled = False
        self.env = simpy.Environment()
        self.process = self.env.process(self._run())

    def run(self) -> None:
        """Run to the end, or until the report cancels."""
        self.env.run(until=self.process)

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            until = self.env.now + self.slice if self.report else math.inf
            started = time.perf_counter()
            self.outcome = self.replica.advance(until)
            wall = time.perf_counter() - started
            if self.report and not self.report():
                self.cancelled = True
                return
            if self.outcome != self.going_on:
                return
            if wall < SHORTEST_CALL_S:
                self.slice *= 2
            elif wall > LONGEST_CALL_S:
                self.slice /= 2
            yield self.env.timeout(until - self.env.now)
