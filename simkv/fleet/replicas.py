"""The replicas of a fleet: engines that take requests when a router sends them, not when a trace says so.

All replicas of one engine share one array of request records: a request is on one replica at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import ABORTED, FINISHED, REJECTED, RUNNING, UNTIL, WAITING, Resolved
from simkv.engine.engines import make_engine, writes_kv_events
from simkv.engine.step_time import StepTime
from simkv.fleet.bound import ReplicaTable
from simkv.fleet.inflight import InFlight
from simkv.workload.workload import ABORT, Workload


@dataclass(frozen=True)
class Plan:
    """How one replica is set up."""

    resolved: Resolved
    step_time: StepTime


class Kind:
    """What the replicas of one engine share: request records as new, and which requests are on their way there."""

    def __init__(self, engine: Any) -> None:
        self.reqs = engine.state.reqs
        self.pristine = self.reqs.copy()
        self.arrive, self.tie, self.status, self.finish = (np.asarray(self.reqs[n]) for n in ("arrive", "tie", "status", "finish"))
        self.inflight = InFlight(self.reqs)


class Replicas:
    """Replica slots ``0 … len(plans)-1``; a slot is empty until ``start``.

    Args:
        workload: all requests that may ever be sent.
        plans: one per slot.
        log: write event logs.
        kv_events: a router wants KV events: engines write them, or the log they can be read from.
        max_events: per replica; see ``simkv.replay.MAX_EVENTS``.
    """

    def __init__(self, workload: Workload, plans: Sequence[Plan], *, log: bool, max_events: int | None, kv_events: bool = False) -> None:
        self.workload, self.plans, self.log, self.max_events = workload, list(plans), log, max_events
        self.kv_events = kv_events
        self.slots = len(self.plans)
        self.engines: list[Any] = [None] * self.slots
        self.kinds: dict[tuple[str, str], Kind] = {}
        self.kind_of: list[Kind | None] = [None] * self.slots
        self.timers: list[Any] = [None] * self.slots
        self.gauges: list[Any] = [None] * self.slots
        self.table = ReplicaTable(self.engines)
        self.placed = np.full(len(workload), -1, np.int32)
        self.first_after = np.full(len(workload), -1, np.int64)
        aborts = workload.actions[workload.actions["op"] == ABORT]
        self.aborts: dict[int, list[float]] = {}
        for action in aborts[aborts["req"] >= 0]:
            self.aborts.setdefault(int(action["req"]), []).append(float(action["at"]))

    def start(self, slot: int, at: float) -> None:
        """A process starts in this slot, with an empty cache, at moment ``at``; its log goes on if there was one before."""
        if self.engines[slot] is None:
            self.engines[slot] = self._new(slot)
            self._adopt(slot, at)
        self.engines[slot].counters.now = max(float(self.engines[slot].counters.now), at)
        self.table.replace(slot, self.engines[slot])

    def _new(self, slot: int) -> Any:
        plan = self.plans[slot]
        direct = self.kv_events and writes_kv_events(plan.resolved)
        log = self.log or (self.kv_events and not direct)
        most = None if self.kv_events and not direct else self.max_events  # a log that is given up would end the router's events
        engine: Any = make_engine(self.workload, plan.resolved, plan.step_time.record(), log=log, max_events=most)
        if direct:
            engine.write_kv_events()
        return engine

    def _adopt(self, slot: int, at: float) -> None:
        """Make an engine take only what it is sent."""
        engine = self.engines[slot]
        name = (engine.settings.engine, engine.settings.version)
        if name not in self.kinds:
            reqs = engine.state.reqs
            reqs["first_after"] = -1  # who follows whom is the fleet's business: the next turn may go elsewhere
            self.kinds[name] = Kind(engine)
        kind = self.kind_of[slot] = self.kinds[name]
        actions = self.workload.actions[self.workload.actions["op"] != ABORT]
        engine.state = engine.state._replace(reqs=kind.reqs, actions=actions[actions["at"] >= at].view(np.recarray))
        engine.counters.next_arrival = len(self.workload)
        engine.counters.next_action = 0
        # A field of a record costs microseconds, one of its array a tenth of that; these are needed for every request.
        counters, s = np.asarray(engine.counters.base), engine.settings
        self.timers[slot] = counters["timers"], np.asarray(engine.state.queue["timer"])
        self.gauges[slot] = counters["running"], counters["wait_len"], counters["free"], int(s.num_gpu_blocks), int(s.block_size)

    def stop(self, slot: int, at: float) -> list[int]:
        """The process in this slot dies. Returns the requests it had, in order of arrival there; they can be sent again."""
        kind, engine = self.kind_of[slot], self.engines[slot]
        assert kind is not None
        flight = kind.inflight.flight[: int(kind.inflight.counts[0])]
        lost: list[int] = sorted(int(r) for r in flight if self.placed[r] == slot)
        lost.sort(key=lambda r: float(kind.arrive[r]))
        kind.inflight.lose(lost)
        live = [r for r in lost if WAITING <= kind.status[r] <= RUNNING]
        # What a batch on the device had finished dies with it.
        for name, status in (("finished", FINISHED), ("aborted", ABORTED), ("rejected", REJECTED)):
            engine.counters[name] -= sum(kind.status[r] == status for r in lost)
        engine.restart(self._new(slot), at, live)
        self._adopt(slot, at)
        for r in lost:
            kind.reqs[r] = kind.pristine[r]
            self.placed[r] = -1
        self.table.replace(slot, None)
        return lost

    def send(self, slot: int, req: int, at: float, *, again: bool = False, since: float | None = None) -> None:
        """Request ``req`` reaches the replica at moment ``at``; sent again, it counts as a new arrival there.

        Args:
            since: when it first arrived at a router, if that was earlier: aborts before it concern nobody.
        """
        kind = self.kind_of[slot]
        assert kind is not None
        kind.arrive[req] = at
        if again:
            kind.tie[req] = at + 1e-9 * req
        count, timer = self.timers[slot]
        _push_timer(kind.arrive, count, timer, req)
        kind.inflight.send(req)
        self.placed[req] = slot
        if req in self.aborts:
            self._abort_later(slot, req, at if since is None else since)

    def _abort_later(self, slot: int, req: int, since: float) -> None:
        engine, times = self.engines[slot], [at for at in self.aborts[req] if at >= since]
        actions = np.concatenate([np.asarray(engine.state.actions), np.zeros(len(times), engine.state.actions.dtype)])
        for k, at in enumerate(times, len(engine.state.actions)):
            actions[k] = (at, req, ABORT)
        done = int(engine.counters.next_action)
        actions[done:] = actions[done:][np.argsort(actions["at"][done:], kind="stable")]
        engine.state = engine.state._replace(actions=actions.view(np.recarray))
        self.table.replace(slot, engine)

    def advance(self, stop: float) -> None:
        """All turns of all replicas that begin before ``stop``."""
        self.table.advance(float(np.nextafter(stop, -np.inf)) if stop < np.inf else stop)

    def run_to_an_end(self, stop: float) -> bool:
        """Turns in order of time until one ends a request. False if none begins before ``stop``."""
        return self.table.run_to_an_end(float(np.nextafter(stop, -np.inf)) if stop < np.inf else stop) is not None

    def earliest_turn(self) -> float:
        """When the next turn of any replica begins; infinity if none will."""
        return self.table.earliest()

    def idle(self) -> bool:
        """Whether no replica has anything left to do."""
        return not np.any(self.table.reasons == UNTIL)

    def look(self, now: float) -> list[tuple[float, int, int]]:
        """What routers get to see by ``now``: ``(time, request, FIRST_TOKEN or ENDED)`` in order of time."""
        seen = [row for kind in self.kinds.values() for row in kind.inflight.look(now)]
        return sorted(seen) if len(self.kinds) > 1 else seen

    def ended_at(self, req: int) -> float | None:
        """When a request that was sent has ended, which may lie ahead of what routers see; ``None`` while it goes on."""
        kind = self.kind_of[self.placed[req]]
        assert kind is not None
        if kind.status[req] < FINISHED:
            return None
        at = float(kind.finish[req])
        return at if at == at else float(kind.arrive[req])

    def metrics(self, live: Sequence[int], now: float, out: npt.NDArray[np.void]) -> None:
        """Fill ``METRICS[slots]`` with what the live replicas' gauges say now."""
        queued = sum(kind.inflight.waiting_tokens(self.placed, self.slots) for kind in self.kinds.values())
        tokens = np.asarray(queued).tolist()
        for slot in live:
            running, waiting, free, blocks, block_size = self.gauges[slot]
            usable = blocks - 1
            used = usable - int(free[0])
            usage = used / usable if usable else 0.0
            out[slot] = (now, running[0], waiting[0], usage, used * block_size + tokens[slot], blocks, block_size)

    def never_started(self, slot: int) -> Any:
        """An engine for a slot whose replica never came up: it did nothing."""
        engine = self._new(slot)
        engine.state = engine.state._replace(reqs=engine.state.reqs.copy())
        return engine

    def forget_logs(self) -> None:
        """The logs were for a router only: what is left of them is no record of the run."""
        for engine in self.engines:
            if engine is not None:
                engine.config.log = 0

    def ended(self) -> int:
        """Requests that have ended so far."""
        live = [engine.counters for engine in self.engines if engine is not None]
        return sum(int(c.finished + c.aborted + c.rejected) for c in live)

    def turns(self) -> int:
        """Turns of all replicas so far."""
        return sum(int(engine.counters.turns) for engine in self.engines if engine is not None)


def _push_timer(arrive: npt.NDArray[np.float64], count: npt.NDArray[np.int64], timer: npt.NDArray[np.int64], req: int) -> None:
    """Into the engine's heap of timed requests, by time and number (simkv/engine/vllm/queue.py)."""
    i = int(count[0])
    count[0] = i + 1
    while i > 0:
        above = int(timer[(i - 1) // 2])
        if (arrive[above], above) <= (arrive[req], req):
            break
        timer[i] = above
        i = (i - 1) // 2
    timer[i] = req
