"""Recordings of Ray Serve's PrefixCacheAffinityRouter, driven as a Python object."""

from __future__ import annotations

from typing import Any

from simkv.conformance.router_steps import RouterSteps, Step
from simkv.errors import InputError
from simkv.fleet.routing.policy import Decision, PolicySettings
from simkv.fleet.routing.ray_prefix_aware import IMBALANCED, NOBODY_KNOWN, SMALLEST, RayPrefixAware


class RayServeSteps(RouterSteps):
    """Ray: the queue before each decision, what matched, and who was a candidate. Every step has its own time unless it says one."""

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        if self.recording["policy"] != "prefix_aware":
            raise InputError(f"unknown policy {self.recording['policy']!r}", file=self.file, field="policy", expected="prefix_aware")
        return "ray-prefix-aware"

    def settings(self, known: type[PolicySettings]) -> dict[str, Any]:
        """An infinite threshold is none at all."""
        given = super().settings(known)
        return {name: None if value == float("inf") else value for name, value in given.items()}

    def do_route(self, step: Step) -> None:
        """One decision, with the queues and the tree before it."""
        self.now = float(step.get("time", self.now + 1))
        if "queue_before" in step:
            self.same("queue_before", step["queue_before"], self.by_name(self.candidates.inflight, step["queue_before"]))
        self.compare_sizes(step, "tree_chars_before")
        super().do_route(step)

    def compare(self, step: Step, decision: Decision) -> None:
        """What matched and who competed."""
        policy, order = self.policy, self.candidates.order
        assert isinstance(policy, RayPrefixAware)
        if decision.branch in (IMBALANCED, NOBODY_KNOWN):
            return
        matched, owners = policy.match(self.requests[id(step)], order)
        candidates = policy.smallest() if decision.branch == SMALLEST else owners
        known = {
            "matched_chars": matched,
            "matched_owners": sorted(self.names(owners)),
            "smallest": sorted(self.names(policy.smallest())),
            "candidates": sorted(self.names(candidates)),
        }
        for name, got in known.items():
            if step.get(name) is not None:
                self.same(name, sorted(step[name]) if isinstance(got, list) else step[name], got)
        if order_there := step.get("candidates_order"):
            self.same("worker", step["worker"], min(order_there, key=step["queue_before"].__getitem__))

    def count(self, decision: Decision, chosen: int) -> None:
        """Two choices are lots; of equal queues the first wins, in an order that only the process knows."""
        if decision.weights is not None:
            super().count(decision, chosen)

    def do_actor_died(self, step: Step) -> None:
        """A replica is gone."""
        self.do_remove_worker(step)
