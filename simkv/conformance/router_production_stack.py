"""Recordings of vLLM production-stack: every step names the endpoints there are and the rates the router was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from simkv.conformance.router_steps import RouterSteps, Step, text_units
from simkv.errors import InputError
from simkv.fleet.routing.policy import Decision, PolicySettings
from simkv.fleet.routing.production_stack_prefix import CHUNK
from simkv.fleet.routing.production_stack_rates import RequestRates

POLICIES = {
    "roundrobin": "production-stack-roundrobin",
    "session": "production-stack-session",
    "prefixaware": "production-stack-prefixaware",
}


class RecordedRates(RequestRates):
    """The rates of the step at hand. What was sent is counted as well."""

    recorded: Mapping[int, float]

    def qps(self, worker: int, now: float) -> float | None:
        """As recorded; a worker that is not named has no statistics."""
        return self.recorded.get(worker)

    def counted(self, now: float) -> dict[int, float]:
        """The rates by simkv's own count."""
        rates = {worker: super(RecordedRates, self).qps(worker, now) for worker in range(len(self.sent))}
        return {worker: qps for worker, qps in rates.items() if qps is not None}


class ProductionStackSteps(RouterSteps):
    """The routers as Python objects: endpoints by URL, no requests in flight."""

    policies: ClassVar[dict[str, str]] = POLICIES

    def __init__(self, recording: Mapping[str, Any], file: str) -> None:
        super().__init__({**recording, "steps": [{**step, "worker": step.get("url")} for step in recording["steps"]]}, file)
        policy: Any = self.policy
        policy.urls = list(self.slots)
        window = getattr(policy.settings, "request_stats_window", 1.0)
        self.rates = policy.rates = RecordedRates(len(self.slots), window)

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        name = self.recording["policy"]
        if name not in self.policies:
            raise InputError(f"unknown policy {name!r}", file=self.file, field="policy", expected=", ".join(self.policies))
        return self.policies[name]

    def settings(self, known: type[PolicySettings]) -> dict[str, Any]:
        """Those entries of the configuration that are the policy's."""
        names = {f.name for f in fields(known)}
        return {name: value for name, value in self.recording.get("config", {}).items() if name in names}

    def units(self, step: Step) -> Sequence[int]:
        """The characters of the prompt."""
        return text_units(step.get("prompt", ""))

    def key(self, step: Step) -> str | None:
        """The session in the header, else in the body."""
        name = self.recording.get("config", {}).get("session_key")
        for where in ("headers", "body"):
            if (value := step.get(where, {}).get(name)) is not None:
                return str(value)
        return None

    def worker_names(self) -> list[str]:
        """All endpoints that ever appear."""
        return [url for step in self.steps for url in step["endpoints"]]

    def do_route(self, step: Step) -> None:
        """One decision among the step's endpoints."""
        order = [self.slots[url] for url in step["endpoints"]]
        for slot in self.candidates.order:
            if slot not in order:
                self.policy.remove_worker(slot, self.now)
        for slot in order:
            if slot not in self.candidates.order:
                self.policy.add_worker(slot, self.now)
        self.candidates.order = order
        recorded = {self.slots[url]: float(qps) for url, qps in step.get("qps", {}).items()}
        if "t" in step:
            self.now = float(step["t"])
            if hasattr(self.policy.settings, "request_stats_window"):
                self.same("qps", recorded, self.rates.counted(self.now))
        self.rates.recorded = recorded
        super().do_route(step)

    def compare(self, step: Step, decision: Decision) -> None:
        """Session, matched characters (whole chunks) and the endpoints among which the real router drew."""
        if "session" in step:
            self.same("session", step["session"], self.key(step))
        if "match_chars" in step:
            self.same("match_chars", step["match_chars"], -(-decision.matched // CHUNK) * CHUNK)
        if "random_candidates" in step:
            drawn = decision.scores is None
            self.same("random_candidates", sorted(step["random_candidates"]), sorted(self.names(decision.allowed)) if drawn else [])
