"""The router processes of a fleet: each with tables and counts of its own, and every decision written down."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from simkv.events.fleet_log import DECISION, PREFERS
from simkv.fleet.inflight import ENDED
from simkv.fleet.routing.policy import METRICS, Candidates, Content, Decision, RoutingPolicy
from simkv.fleet.routing.registry import make_policy, policy_class
from simkv.settings.fleet import FleetSettings

MOST_BRANCHES = 255


class DecisionLog:
    """DECISION rows and scores, growing."""

    def __init__(self, workers: int, expected: int) -> None:
        self.rows = np.zeros(max(expected, 16), DECISION)
        self.scores = np.full((len(self.rows), workers), np.nan, np.float32)
        self.used = 0
        self.branches: dict[str, int] = {}
        self.prefers = 0

    def write(self, decision: Decision, row: tuple[float, int, int, int, int, int], truth: npt.NDArray[np.int32] | None) -> None:
        """``row``: time, request, router, worker, attempt, in flight. ``truth``: tokens cached per worker, -1 unknown."""
        k = self.used
        if k == len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            self.scores = np.concatenate([self.scores, np.full_like(self.scores, np.nan)])
        time, req, router, worker, attempt, inflight = row
        branch = self.branches.setdefault(decision.branch, min(len(self.branches), MOST_BRANCHES))
        cached, most, best = -1, -1, -1
        if truth is not None:
            held = truth.tolist()
            cached, most = held[worker], max(held)
            best = -1 if most < 0 else worker if cached == most else held.index(most)
        matched = decision.matched if decision.believed is None else decision.believed[worker]
        self.rows[k] = (time, req, router, worker, branch, attempt, matched, decision.total, inflight, cached, most, best)
        if decision.scores is not None:
            self.scores[k] = decision.scores
            self.prefers = decision.prefers
        self.used += 1

    def finished(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.float32], tuple[str, ...], str]:
        """Rows, scores, names of the branches, which scores are preferred."""
        return self.rows[: self.used], self.scores[: self.used], tuple(self.branches), PREFERS[self.prefers]


class Process:
    """One router process."""

    def __init__(self, policy: RoutingPolicy, seed: int, number: int) -> None:
        self.policy = policy
        self.inflight = np.zeros(policy.workers, np.int64)
        self.candidates = Candidates([], self.inflight, np.zeros(policy.workers, METRICS))
        self.candidates.metrics["time"] = np.nan
        self.random = random.Random(f"{seed} {number}")  # the same on every machine and release, unlike numpy's generators
        self.next_tick = policy.interval

    def draw(self, decision: Decision) -> int:
        """One of the allowed workers: the only one, else by lot."""
        allowed = decision.allowed
        if len(allowed) == 1:
            return int(allowed[0])
        if decision.weights is None:
            return int(allowed[int(self.random.random() * len(allowed))])
        sums = list(accumulate(decision.weights))
        at = self.random.random() * sums[-1]
        return int(allowed[min(bisect_right(sums, at), bisect_left(sums, sums[-1]))])

    def tick(self, now: float) -> None:
        """The background work that was due before ``now``."""
        interval = self.policy.interval
        while interval is not None and self.next_tick is not None and self.next_tick <= now:
            self.policy.tick(self.next_tick)
            self.next_tick += interval


class Routers:
    """All router processes of a fleet.

    Args:
        content: the requests.
        fleet: which policy, how many processes.
        slots: replicas there are at most.
        block_size: the engines', which a router that follows KV events must have as well unless it is told another one.
    """

    def __init__(self, content: Content, fleet: FleetSettings, slots: int, block_size: int) -> None:
        own = {"block_size": block_size} if policy_class(fleet.router).wants_kv_events else {}
        settings = {**own, **fleet.router_settings}
        policies = [make_policy(fleet.router, content, slots, settings)]
        for _ in range(1, fleet.routers):
            policies.append(policies[0] if policies[0].shared else make_policy(fleet.router, content, slots, settings))
        self.processes = [Process(policy, fleet.seed, k) for k, policy in enumerate(policies)]
        self.policy = self.processes[0].policy
        self.owners = self.processes[:1] if self.policy.shared else self.processes
        """The processes whose tables are their own: one where all share them."""
        self.kv_indexes = [p.policy.kv_index for p in self.owners if p.policy.kv_index is not None]
        """What the processes know of the caches from KV events; who has these events puts them in here."""
        self.spread = random.Random(f"{fleet.seed} spread") if fleet.spread == "random" else None
        self.log = DecisionLog(slots, len(content.workload))
        self.at = np.full(len(content.workload), -1, np.int32)
        self.count = 0
        self.metrics_interval = self.policy.metrics_interval_s if fleet.metrics_interval_s is None else fleet.metrics_interval_s
        self.scraped = -np.inf

    @property
    def live(self) -> list[int]:
        """Replicas that take requests."""
        return self.processes[0].candidates.order

    def add(self, worker: int, now: float) -> None:
        """A replica takes requests from now on."""
        for p in self.processes:
            p.candidates.order.append(worker)
        for p in self.owners:
            p.tick(now)
            p.policy.add_worker(worker, now)

    def remove(self, worker: int, now: float) -> None:
        """A replica takes none any more."""
        if worker not in self.live:
            return
        for p in self.processes:
            p.candidates.order.remove(worker)
        for p in self.owners:
            p.tick(now)
            p.policy.remove_worker(worker, now)

    def wants_scrape(self, now: float) -> float | None:
        """The moment at which metrics must be read before deciding at ``now``; ``None`` if those at hand are the latest."""
        if not self.policy.wants_metrics:
            return None
        due = now if self.metrics_interval <= 0 else math.floor(now / self.metrics_interval) * self.metrics_interval
        return due if due > self.scraped or self.scraped == -np.inf else None

    def scrape(self, read: Callable[[npt.NDArray[np.void]], None], now: float) -> None:
        """Read the metrics, for all processes."""
        metrics = self.processes[0].candidates.metrics
        read(metrics)
        for p in self.processes[1:]:
            p.candidates.metrics[:] = metrics
        self.scraped = now

    def tell(self, time: float, req: int, kind: int, worker: int) -> None:
        """The first token or the end of a request came by at its router."""
        p = self.processes[self.at[req]]
        if kind == ENDED:
            p.inflight[worker] -= 1
            p.policy.finished(req, worker, time)
        elif p.policy.wants_first_tokens:
            p.policy.first_token(req, worker, time)

    def lost(self, req: int, worker: int, now: float) -> None:
        """The replica died with this request."""
        self.tell(now, req, ENDED, worker)

    def route(self, req: int, now: float, attempt: int, truth: Callable[[int, list[int]], npt.NDArray[np.int32]] | None) -> int:
        """Decide, write it down, and let the tables learn. ``live`` must not be empty.

        Returns:
            The replica; -1 if the router answers with an error, as the real one does.
        """
        n = len(self.processes)
        k = 0 if n == 1 else int(self.spread.random() * n) if self.spread else self.count % n
        self.count += 1
        p = self.processes[k]
        (self.owners[0] if self.policy.shared else p).tick(now)
        decision = p.policy.decide(req, now, p.candidates)
        if not len(decision.allowed):
            return -1
        worker = p.draw(decision)
        held = truth(req, p.candidates.order) if truth is not None else None
        self.log.write(decision, (now, req, k, worker, attempt, int(p.inflight[worker])), held)
        p.policy.commit(req, worker, now)
        p.inflight[worker] += 1
        self.at[req] = k
        return worker
