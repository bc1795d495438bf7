"""power_of_two of sglang-router 0.3.2 and of smg 1.13.0 (policies/power_of_two.rs): two different workers drawn, the less loaded wins.

Load is the number of tokens a worker reported last (GET /get_load, num_tokens). A tie goes to the one drawn first. While
a worker has reported none, sglang-router draws blindly; smg then compares requests in flight.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.policy import Candidates, Decision
from simkv.fleet.routing.simple import PowerOfTwo


class SglangPowerOfTwo(PowerOfTwo):
    """Of two workers drawn at random the one that reported fewer tokens."""

    name = "sglang-power-of-two"
    product = "sglang-router 0.3.2"
    wants_metrics = True
    metrics_interval_s = 1.0

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Those that can win, with their chances."""
        times = c.metrics["time"].tolist()
        known = all(times[w] == times[w] for w in c.order)  # NaN: never asked
        return super().decide(req, now, Candidates(c.order, c.metrics["tokens"] if known else self.unknown(c), c.metrics))

    def unknown(self, c: Candidates) -> np.ndarray:
        """What is compared without reports: nothing."""
        return np.zeros(self.workers, np.int64)


class SmgPowerOfTwo(SglangPowerOfTwo):
    """Of two workers drawn at random the one that reported fewer tokens; requests in flight count until reports are there."""

    name = "smg-power-of-two"
    product = "smg 1.13.0"
    metrics_interval_s = 10.0

    def unknown(self, c: Candidates) -> np.ndarray:
        """Requests in flight."""
        return c.inflight
