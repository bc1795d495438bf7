"""The steps of a router's recording, one after another, against one policy. A product's reader says what its fields mean."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simkv.conformance.result import Comparison, RunResult
from simkv.errors import InputError
from simkv.fleet.routing.policy import METRICS, Candidates, Content, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.registry import policy_class
from simkv.workload.content import explicit_requests
from simkv.workload.workload import Workload

Step = Mapping[str, Any]

MOST_SIGMAS = 6.0
"""A worker drawn more often or seldom than this many standard deviations off its expected count is no chance (1 in 500 million)."""


class RouterSteps:
    """One recording. Subclasses say which policy it is of and what a step holds.

    A worker's slot is its number in order of first appearance. Everything a recording asks of the policy goes through
    ``policy``, ``candidates`` and the methods ``do_<op>``; a subclass adds ops and comparisons.

    Args:
        recording: the parsed file.
        file: its name.
    """

    draws_lots: bool = True
    """Whether several allowed workers are lots with the decision's weights, rather than an order that nobody knows."""

    beginning = 0
    """Which of the states the real router may have begun in (``beginnings``)."""

    @classmethod
    def check(cls, recording: Mapping[str, Any], file: str) -> RunResult:
        """Replay from each state the router may have begun in until one is exact; else the first of them counts."""
        results: list[RunResult] = []
        for beginning in range(cls.beginnings(recording)):
            steps = cls(recording, file)
            steps.beginning = beginning
            results.append(steps.run())
            if results[-1].exact:
                note = f"{results[-1].note}, the {beginning + 1}. of the states it may have begun in" if beginning else results[-1].note
                return replace(results[-1], note=note)
        return results[0]

    @classmethod
    def beginnings(cls, recording: Mapping[str, Any]) -> int:
        """In how many states the real router may have begun that a recording does not tell apart."""
        return 1

    def __init__(self, recording: Mapping[str, Any], file: str) -> None:
        self.recording, self.file = recording, file
        self.comparison = Comparison(file.split(".")[0])
        self.steps: list[Step] = recording["steps"]
        self.routes = [step for step in self.steps if step["op"] == "route"]
        self.slots = {name: slot for slot, name in enumerate(dict.fromkeys(self.worker_names()))}
        self.requests = {id(step): i for i, step in enumerate(self.routes)}
        self.number = {str(step["id"]): i for i, step in enumerate(self.routes) if "id" in step}
        self.held: dict[int, tuple[int, int]] = {}
        self.joined = np.zeros(len(self.slots), np.int64)
        self.answering = np.zeros(len(self.slots), np.int64)
        self.expected = np.zeros((2, len(self.slots)))
        self.content = Content(self.workload(), 1, [self.key(step) for step in self.routes])
        self.policy = self.make_policy()
        self.candidates = Candidates([], np.zeros(len(self.slots), np.int64), np.zeros(len(self.slots), METRICS))
        self.candidates.metrics["time"] = math.nan
        self.now = 0.0

    # What a product's reader says.

    def policy_name(self) -> str:
        """simkv's name of the recorded policy."""
        raise NotImplementedError

    def settings(self, known: type[PolicySettings]) -> dict[str, Any]:
        """The policy's settings; by default those of the recording's configuration."""
        return dict(self.recording.get("config", {}))

    def units(self, step: Step) -> Sequence[int]:
        """What the router matched on: the characters of its text, its token ids, …"""
        return text_units(step.get("routing_text", step.get("text", "")))

    def key(self, step: Step) -> str | None:
        """What identifies the session."""
        return None

    def worker_names(self) -> list[str]:
        """All workers that ever appear, those of the start first."""
        return [*self.recording.get("workers", ()), *(s["worker"] for s in self.steps if s["op"] == "add_worker")]

    def begin(self) -> None:
        """Put the policy into the state ``beginning``; its workers have joined."""

    def compare(self, step: Step, decision: Decision) -> None:
        """Compare what the recording has beside the worker (``same``)."""

    # The common way.

    def make_policy(self) -> RoutingPolicy:
        """The policy with empty tables."""
        cls = policy_class(self.policy_name())
        return cls(self.content, len(self.slots), cls.Settings.from_mapping(self.settings(cls.Settings)))

    def contents(self) -> list[Step]:
        """Steps with content, the routed requests first."""
        return self.routes

    def workload(self) -> Workload:
        """The contents as prompts without an answer."""
        prompts = [np.fromiter(self.units(step), np.int32) for step in self.contents()]
        counts, n = np.array([len(p) for p in prompts], np.int64), len(prompts)
        none = np.zeros(n, np.int64)
        flat = np.concatenate([np.zeros(0, np.int32), *prompts])
        runs, first, tokens = explicit_requests((flat, counts), (np.zeros(0, np.int32), none), none, self.file)
        return Workload(self.file, "router recording", np.zeros(n), counts.astype(np.int32), none.astype(np.int32), first, runs, tokens)

    def run(self) -> RunResult:
        """Take all steps; the first difference ends it."""
        for name in self.recording.get("workers", ()):
            self.join(self.slots[name])
        self.begin()
        for number, step in enumerate(self.steps):
            take = getattr(self, f"do_{step['op']}", None)
            if take is None:
                raise InputError(f"unknown op {step['op']!r}", file=self.file, field=f"steps[{number}].op")
            self.at = number
            take(step)
            if self.comparison.difference is not None:
                break
        self.check_draws()
        return self.comparison.result(f"{len(self.routes)} decisions of {self.recording['router']} {self.recording['version']}")

    def same(self, name: str, recorded: Any, got: Any) -> None:
        """Compare one field of the step at hand."""
        self.comparison.equal(self.at, name, recorded, got)

    def names(self, slots: Sequence[int]) -> list[str]:
        """Workers by name."""
        names = list(self.slots)
        return [names[slot] for slot in slots]

    def by_name(self, values: Any, among: Mapping[str, Any]) -> dict[str, int]:
        """The values of the workers that ``among`` names."""
        return {name: int(values[self.slots[name]]) for name in among}

    def join(self, slot: int, order: Sequence[str] | None = None) -> None:
        """A worker comes; ``order`` is the candidates' order from now on."""
        self.candidates.inflight[slot] = 0
        self.joined[slot] += 1
        self.candidates.order = [*self.candidates.order, slot] if order is None else [self.slots[name] for name in order]
        self.policy.add_worker(slot, self.now)

    def decide(self, req: int) -> Decision:
        """The rule's answer for a request."""
        return self.policy.decide(req, self.now, self.candidates)

    def do_route(self, step: Step) -> None:
        """One decision: the recorded worker must be among those allowed, and becomes the one."""
        req = self.requests[id(step)]
        if "inflight_before" in step:
            self.same("inflight_before", step["inflight_before"], self.by_name(self.answering, step["inflight_before"]))
        worker = step.get("worker")
        if worker is None and _bad_request(step.get("error")):
            return
        decision = self.decide(req)
        if worker is None:
            self.same("worker", [], self.names(decision.allowed))
            return
        if self.slots[worker] not in decision.allowed:
            self.same("worker", worker, self.names(decision.allowed))
            return
        self.same("worker", worker, worker)
        self.compare(step, decision)
        self.count(decision, self.slots[worker])
        self.take(req, self.slots[worker], bool(step.get("hold")))

    def take(self, req: int, slot: int, hold: bool) -> None:
        """The request goes to a worker and, unless it is held, ends there before the next step."""
        self.policy.commit(req, slot, self.now)
        self.candidates.inflight[slot] += 1
        self.answering[slot] += 1
        self.held[req] = (slot, int(self.joined[slot]))
        if not hold:
            self.end(req)

    def end(self, req: int) -> None:
        """A held request's answer is complete. A worker that left and returned is a new one to the router: it begins at 0."""
        slot, joined = self.held.pop(req)
        self.answering[slot] -= 1
        self.candidates.inflight[slot] -= joined == self.joined[slot]
        self.policy.finished(req, slot, self.now)

    def do_finish(self, step: Step) -> None:
        """A held request ends."""
        self.end(self.number[str(step["id"])])

    def do_add_worker(self, step: Step) -> None:
        """A worker joins, or returns."""
        self.join(self.slots[step["worker"]], step.get("order"))

    def do_remove_worker(self, step: Step) -> None:
        """A worker leaves."""
        slot = self.slots[step["worker"]]
        rest = [s for s in self.candidates.order if s != slot]
        self.candidates.order = [self.slots[name] for name in step["order"]] if "order" in step else rest
        self.policy.remove_worker(slot, self.now)

    def do_evict(self, step: Step) -> None:
        """One pass of the background eviction."""
        self.compare_sizes(step, "sizes_before")
        self.policy.tick(self.now)
        self.compare_sizes(step, "sizes_after")

    def compare_sizes(self, step: Step, name: str) -> None:
        """Units that the policy's tree holds per worker (``policy.tree_sizes()``)."""
        if name in step:
            sizes: Any = getattr(self.policy, "tree_sizes")()  # noqa: B009 - only policies with a tree have it
            self.same(name, step[name], self.by_name(sizes, step[name]))

    def count(self, decision: Decision, chosen: int) -> None:
        """Add a draw to what is expected of all draws: counts and their variance."""
        allowed = list(decision.allowed)
        if not self.draws_lots or len(allowed) < 2:
            return
        chance = np.ones(len(allowed)) if decision.weights is None else np.asarray(decision.weights, np.float64)
        chance = chance / chance.sum()
        self.expected[0, allowed] += chance
        self.expected[1, allowed] += chance * (1 - chance)
        self.expected[0, chosen] -= 1

    def check_draws(self) -> None:
        """No worker was drawn absurdly often or seldom."""
        off, spread = self.expected
        self.at = len(self.steps)
        for name, difference, variance in zip(self.slots, off, spread, strict=True):
            if abs(difference) > MOST_SIGMAS * math.sqrt(variance) + 3:
                self.same(
                    f"draws of {name} away from the expected number", f"within {MOST_SIGMAS:g} standard deviations", round(difference, 1)
                )


def _bad_request(error: Any) -> bool:
    """Whether the router refused the request itself (HTTP status 400 … 499) before it looked for a worker."""
    return isinstance(error, str) and re.match(r"\(?4\d\d\b", error) is not None


def text_units(text: str) -> list[int]:
    """A text's characters as code points."""
    return [ord(c) for c in text]
