"""What is done to replicas, and what happens to them: rolling deploys, failures, scaling. One SimPy process each.

Draining follows Kubernetes: a pod that is to go takes no new requests and has until its grace period ends. Whether a
replica has drained, or its warming requests are done, is looked at once a second, as a readiness probe would.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import simpy

from simkv.settings.fleet import Operation

if TYPE_CHECKING:
    from simkv.fleet.fleet import Fleet

PROBE_S = 1.0
Steps = Generator[simpy.Event, Any, None]


def start_operations(fleet: Fleet) -> None:
    """Start all operations of the settings; each waits for its moment."""
    for number, operation in enumerate(fleet.settings.operations):
        fleet.env.process(PROCESSES[operation.kind](fleet, operation, number))


def deploy(fleet: Fleet, operation: Operation, number: int) -> Steps:
    """Exchange every replica (or one): ``batch`` at a time, the next when the last ones take traffic again."""
    yield fleet.env.timeout(operation.at)
    live = sorted(fleet.routers.live)
    slots = live if operation.replica is None else [slot for slot in live if slot == operation.replica]
    if not slots:
        fleet.remark(f"The deploy at {operation.at:g} s found no running replica to exchange: nothing happened.")
    for first in range(0, len(slots), operation.batch):
        parts = [fleet.env.process(_exchange(fleet, operation, number, slot)) for slot in slots[first : first + operation.batch]]
        yield fleet.env.all_of(parts)


def _exchange(fleet: Fleet, operation: Operation, number: int, slot: int) -> Steps:
    if slot not in fleet.routers.live:
        fleet.remark(f"Replica {slot} was not running when its turn in the deploy came: it was left out.")
        return
    yield from _take_out(fleet, operation, slot)
    fleet.note("restarting", slot)
    yield from _bring_in(fleet, operation, number, slot)


def fail(fleet: Fleet, operation: Operation, number: int) -> Steps:
    """A replica dies; after ``down_s`` it is started again, if ever."""
    yield fleet.env.timeout(operation.at)
    slot, leaving = int(operation.replica or 0), int(operation.replica or 0) in fleet.draining
    if slot not in fleet.routers.live and not leaving:
        fleet.remark(f"Replica {slot} was to fail at {operation.at:g} s, when it was not running: nothing happened.")
        return
    fleet.note("failed", slot)
    fleet.draining.discard(slot)
    fleet.routers.remove(slot, fleet.env.now)
    fleet.kill(slot, fleet.env.now)
    if operation.down_s is not None and not leaving:  # who drained it starts it again, if anybody does
        yield fleet.env.timeout(operation.down_s)
        fleet.note("restarting", slot)
        yield from _bring_in(fleet, operation, number, slot)


def add(fleet: Fleet, operation: Operation, number: int) -> Steps:
    """Scale out: new replicas, each ready after ``startup_s``."""
    yield fleet.env.timeout(operation.at)
    parts = []
    for _ in range(operation.count):
        slot = fleet.slot_of_next
        fleet.slot_of_next += 1
        fleet.note("added", slot)
        parts.append(fleet.env.process(_bring_in(fleet, operation, number, slot)))
    yield fleet.env.all_of(parts)


def remove(fleet: Fleet, operation: Operation, number: int) -> Steps:
    """Scale in: a replica goes for good."""
    yield fleet.env.timeout(operation.at)
    slot = int(operation.replica or 0)
    if slot not in fleet.routers.live:
        fleet.remark(f"Replica {slot} was to be removed at {operation.at:g} s, when it took no requests: nothing happened.")
        return
    yield from _take_out(fleet, operation, slot)
    fleet.note("removed", slot)


PROCESSES: dict[str, Callable[[Fleet, Operation, int], Steps]] = {"deploy": deploy, "fail": fail, "add": add, "remove": remove}


def _take_out(fleet: Fleet, operation: Operation, slot: int) -> Steps:
    """No new requests; wait for the running ones if the operation drains; then the process ends."""
    env = fleet.env
    fleet.routers.remove(slot, env.now)
    if operation.drain:
        fleet.note("draining", slot)
        fleet.draining.add(slot)
        over = env.now + operation.drain_timeout_s
        while fleet.load[slot] > 0 and env.now < over and slot in fleet.draining:
            yield env.timeout(min(PROBE_S, over - env.now))
        if slot not in fleet.draining:
            return  # it failed meanwhile
        fleet.draining.discard(slot)
    fleet.kill(slot, env.now)


def _bring_in(fleet: Fleet, operation: Operation, number: int, slot: int) -> Steps:
    """Start a process; compute the warming requests; then it takes traffic."""
    env = fleet.env
    yield env.timeout(operation.startup_s)
    fleet.start(slot, env.now)
    rounds = fleet.warming.get(number, [])
    if rounds:
        requests = rounds.pop()
        for req in requests:
            fleet.warm_of[req] = slot
            fleet.send(slot, req, env.now)
        while fleet.load[slot] > 0:
            yield env.timeout(PROBE_S)
        fleet.note("warmed", slot)
    fleet.note("ready", slot)
    fleet.routers.add(slot, env.now)
    fleet.release(env.now)
