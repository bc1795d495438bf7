"""The clock of a fleet: arrivals come to routers, routers choose replicas, operations happen, replicas advance in between.

Arrivals are walked from the workload's arrays. What lasts (deploys, draining, failures) are SimPy processes. Between two
such moments all replicas advance inside the compiled core; nothing is done per step or per block here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import simpy

from simkv.engine.contract import CRASHED, STALLED
from simkv.events.fleet_log import OPERATION, OPERATION_KINDS
from simkv.fleet.arrivals import Arrivals
from simkv.fleet.inflight import ENDED
from simkv.fleet.kv_feed import KVFeed
from simkv.fleet.replicas import Replicas
from simkv.fleet.routers import Routers
from simkv.fleet.truth import Truth
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload

FIRST_SLICE = 1 / 256
REPORT_EVERY_S = 0.1
LONGEST_CALL_S, SHORTEST_CALL_S = 0.2, 0.05
TINY = 1e-9


class Fleet:
    """One run of a fleet.

    Args:
        workload: the traffic, and behind it the warming requests (``warming`` says which).
        settings: replicas, routers, operations.
        replicas: the slots, none started.
        routers: the router processes.
        warming: request numbers for warming a replica, by operation number.
        report: called several times a second; returning False cancels.
        feed: the replicas' KV events, for policies that want them.
        truth: what each replica's cache really holds, written beside every decision; ``None`` leaves that out.
    """

    def __init__(
        self,
        workload: Workload,
        settings: FleetSettings,
        replicas: Replicas,
        routers: Routers,
        warming: dict[int, list[list[int]]],
        report: Callable[[], bool] | None,
        truth: Truth | None = None,
        feed: KVFeed | None = None,
    ) -> None:
        self.workload, self.settings, self.replicas, self.routers = workload, settings, replicas, routers
        self.warming, self.report, self.truth, self.feed = warming, report, truth, feed
        self.env = simpy.Environment()
        self.arrivals = Arrivals(workload)
        self.attempts = np.zeros(len(workload), np.int32)
        self.arrived = np.full(len(workload), np.nan)
        self.happened: list[tuple[float, int, int]] = []
        self.draining: set[int] = set()
        self.load = [0] * replicas.slots
        self.held: list[int] = []
        self.given_up: list[int] = []
        self.refused: list[int] = []
        self.remarks: list[str] = []
        self.warm_of: dict[int, int] = {}
        self.slot_of_next = settings.replicas
        self.seen = self._fed = -np.inf
        self.cancelled = False
        self._slice = max(workload.duration_s * FIRST_SLICE, 1e-3)
        self._reported = time.perf_counter()

    def run(self) -> None:
        """From the first arrival until nothing more can happen, or the report cancels."""
        from simkv.fleet.operations import start_operations

        first = min(0.0, self.arrivals.peek()) if self.arrivals.peek() < np.inf else 0.0
        for slot in range(self.settings.replicas):
            self.start(slot, first)
            self.routers.add(slot, first)
        start_operations(self)
        while not self.cancelled:
            outside, arrival = self.env.peek(), self.arrivals.peek()
            until = min(outside, arrival)
            if not self._advance(until):
                continue
            if until == np.inf:
                break
            if outside <= arrival:
                self.env.step()
            else:
                at, req = self.arrivals.pop()
                self.dispatch(req, at)

    def note(self, kind: str, slot: int, at: float | None = None) -> None:
        """Write down what happened to a replica."""
        self.happened.append((self.env.now if at is None else at, OPERATION_KINDS.index(kind), slot))

    def remark(self, sentence: str) -> None:
        """Something about the run that its reader must know."""
        self.remarks.append(sentence)

    def operations(self) -> npt.NDArray[np.void]:
        """``OPERATION`` rows in order of time."""
        rows = np.array(self.happened, OPERATION)
        return rows[np.argsort(rows["time"], kind="stable")]

    def dispatch(self, req: int, at: float) -> None:
        """A request comes to the routers; where no replica takes any it waits for one."""
        if not self.routers.live:
            self._came(req, at)
            self.held.append(req)
            return
        due = self.routers.wants_scrape(at)
        if due is not None:
            self._scrape(due)
        if self.feed is not None and at > self._fed:
            self._fed = at
            self.feed.deliver(self.routers.live, at, self.routers.kv_indexes)
        attempt = self.attempts.item(req)
        slot = self.routers.route(req, at, attempt, self.truth.cached if self.truth is not None else None)
        if slot < 0:
            self._came(req, at)
            self.refused.append(req)
            self.arrivals.ended(req, at)
            return
        self.send(slot, req, at, again=attempt > 0)

    def send(self, slot: int, req: int, at: float, *, again: bool = False) -> None:
        """A request goes to a replica, past the routers if it is a warming one."""
        self.replicas.send(slot, req, at, again=again, since=self._came(req, at))
        self.load[slot] += 1
        self.arrivals.watch(req)

    def _came(self, req: int, at: float) -> float:
        """When the request came first; now, if it comes for the first time."""
        first: float = self.arrived.item(req)
        if first == first:
            return first
        self.arrived[req] = at
        return at

    def start(self, slot: int, at: float) -> None:
        """A process starts in a slot; it takes no requests yet."""
        self.replicas.start(slot, at)
        if self.truth is not None:
            self.truth.replace(slot, self.replicas.engines[slot])
        if self.feed is not None:
            self.feed.replace(slot, self.replicas.engines[slot])

    def release(self, at: float) -> None:
        """A replica takes requests again: those that waited for one come to the routers now."""
        waiting, self.held = self.held, []
        for req in waiting:
            self.dispatch(req, at)

    def kill(self, slot: int, at: float) -> None:
        """The process in a slot dies; what it had is sent again, or given up after too many deaths."""
        self.look(at)
        routed = [r for r in self.replicas.stop(slot, at) if r not in self.warm_of]
        if self.truth is not None:
            self.truth.replace(slot, None)
        self.load[slot] = 0
        for req in routed:
            self.routers.lost(req, slot, at)
            self.arrivals.forget(req)
        for req in routed:
            self.attempts[req] += 1
            if self.attempts[req] > self.settings.retries:
                self.given_up.append(req)
                self.arrivals.ended(req, at)
            else:
                self.arrivals.push(at, req)

    def look(self, now: float) -> None:
        """What came by until ``now``: tell the routers, and let requests come that follow an ended one."""
        for at, req, kind in self.replicas.look(now):
            slot = int(self.replicas.placed[req])
            if kind == ENDED:
                self.load[slot] -= 1
            if req not in self.warm_of:
                self.routers.tell(at, req, kind, slot)
        for req in list(self.arrivals.watched):
            end = self.replicas.ended_at(req)
            if end is not None and end <= now:
                self.arrivals.ended(req, end)

    def _advance(self, until: float) -> bool:
        """Bring every replica to just before ``until``. False if a new arrival comes before, or the run was cancelled."""
        while self.seen < until:
            stop = until if self.report is None else min(until, max(self.seen, 0.0) + self._slice)
            cut, began = stop < until, time.perf_counter()
            due = self.routers.wants_scrape(until) if until < np.inf else None
            if due is not None and self.seen < due:
                stop = min(stop, due)
            self.seen = self._advance_replicas(stop)
            self.look(self.seen)
            if due is not None and self.seen >= due:
                self._scrape(due)
            self._resize(cut, time.perf_counter() - began)
            if not self._go_on():
                self.cancelled = True
                return False
            if self.arrivals.peek() < until:
                return False
            if until == np.inf and self.replicas.idle() and all(self.replicas.ended_at(req) is None for req in self.arrivals.watched):
                break
        return True

    def _advance_replicas(self, stop: float) -> float:
        """Bring the replicas to ``stop``, or less far where the end of a request may bring a new one before that."""
        if not self.arrivals.watched:
            self.replicas.advance(stop)
            return stop
        waits = self.arrivals.watched
        ends = {req: self.replicas.ended_at(req) for req in waits}
        stop = min([stop, *(end for end in ends.values() if end is not None)])
        ahead = min((waits[req] for req, end in ends.items() if end is None), default=np.inf)
        if ahead > TINY:
            stop = min(stop, max(self.seen, self.replicas.earliest_turn()) + ahead)
            self.replicas.advance(stop)
            return stop
        if not self.replicas.run_to_an_end(stop):
            return stop
        # That turn may have brought an end whose follower comes before the next turn, or although no turn is left.
        return min([stop, self.replicas.earliest_turn(), *(end for req in waits if (end := self.replicas.ended_at(req)) is not None)])

    def _scrape(self, at: float) -> None:
        self.routers.scrape(lambda out: self.replicas.metrics(self.routers.live, at, out), at)

    def _resize(self, cut: bool, took: float) -> None:
        """Slices of simulated time so long that one call of the core takes about a tenth of a second."""
        if took > LONGEST_CALL_S:
            self._slice /= 2
        elif cut and took < SHORTEST_CALL_S:
            self._slice *= 2

    def _go_on(self) -> bool:
        if self.report is None or time.perf_counter() - self._reported < REPORT_EVERY_S:
            return True
        self._reported = time.perf_counter()
        return self.report()

    @property
    def stuck(self) -> list[int]:
        """Replicas that can never go on."""
        return [s for s in range(self.replicas.slots) if self.replicas.table.reasons[s] in (STALLED, CRASHED)]
