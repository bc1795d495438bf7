"""Requests per second as vLLM production-stack counts them, and its choice by them.

Product: vLLM production-stack, git a6c01db0 (2026-08-05), src/vllm_router/stats/request_stats.py and
``_qps_routing`` of src/vllm_router/routers/routing_logic.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np

from simkv.fleet.routing.policy import LOWER, Decision, PolicySettings
from simkv.settings.base import setting


@dataclass(frozen=True)
class RateSettings(PolicySettings):
    """The router's ``--request-stats-window``."""

    request_stats_window: float = setting(60.0, "seconds over which requests per second are counted", min=0.001, max=86_400.0)


class RequestRates:
    """Requests sent to each worker within a sliding window. A worker that never got one has no statistics; one that left keeps them."""

    def __init__(self, workers: int, window: float) -> None:
        self.window = window
        self.sent: list[deque[float] | None] = [None] * workers

    def on_new_request(self, worker: int, now: float) -> None:
        """A request goes to a worker."""
        sent = self.sent[worker]
        if sent is None:
            sent = self.sent[worker] = deque()
        sent.append(now)

    def qps(self, worker: int, now: float) -> float | None:
        """Requests of the window divided by its length; ``None`` without statistics."""
        sent = self.sent[worker]
        if sent is None:
            return None
        while sent and sent[0] < now - self.window:
            sent.popleft()
        return len(sent) / self.window


def lowest_qps(order: Sequence[int], rates: RequestRates, now: float, workers: int) -> Decision:
    """The first candidate without statistics, else the first with the lowest rate."""
    scores = np.full(workers, nan)
    lowest, best = inf, order[0]
    for worker in order:
        qps = rates.qps(worker, now)
        if qps is None:
            return Decision([worker], "no statistics", scores=scores, prefers=LOWER)
        scores[worker] = qps
        if qps < lowest:
            lowest, best = qps, worker
    return Decision([best], "lowest qps", scores=scores, prefers=LOWER)
