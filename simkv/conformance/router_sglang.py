"""Recordings of sglang-router 0.3.2 and of its successor smg 1.13.0: which policy, which key, which text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from simkv.conformance.router_steps import RouterSteps, Step, text_units
from simkv.errors import InputError
from simkv.fleet.routing.policy import Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.prefix_tree import TOUCH_EVERY

ELSEWHERE = (
    "cache_threshold",
    "balance_abs_threshold",
    "balance_rel_threshold",
    "eviction_interval_secs",
    "max_tree_size",
    "block_size",
    "max_idle_secs",
    "assignment_mode",
    "prefix_token_count",
    "prefix_hash_load_factor",
    "prefix_hash_balance_abs_threshold",
    "load_monitor_interval",
    "disable_retries",
    "log_level",
    "worker_startup_timeout_secs",
)
"""Flags that a policy which does not know them does not read."""


class SglangRouterSteps(RouterSteps):
    """sglang-router: requests over HTTP, workers by URL."""

    policies: ClassVar[dict[str, str]] = {
        "round_robin": "round-robin",
        "random": "random",
        "cache_aware": "sglang-cache-aware",
        "power_of_two": "sglang-power-of-two",
        "consistent_hashing": "sglang-consistent-hashing",
        "manual": "sglang-manual",
    }
    refusing: ClassVar[tuple[str, ...]] = ("prefix_hash",)
    """Policies that answer every request with an error: over HTTP they are never given what they hash."""

    hash_order: ClassVar[tuple[str, ...]] = ("cache_aware",)
    """Policies that allow several workers only where a hash map's order decides (an owner whose entry was evicted)."""

    stable_headers: ClassVar[tuple[str, ...]] = ("authorization", "x-forwarded-for", "cookie")
    """What stands for a session where consistent_hashing finds no routing key."""

    def settings(self, known: type[PolicySettings]) -> dict[str, Any]:
        """The configuration, without flags that only other policies read or that change no decision."""
        fields = known.__dataclass_fields__
        return {name: value for name, value in super().settings(known).items() if name in fields or name not in ELSEWHERE}

    @classmethod
    def beginnings(cls, recording: Mapping[str, Any]) -> int:
        """Remainders by 8 of cache_aware's clock: it begins with as many ticks as the registrations of the workers took.

        Those overlap, each counts the workers that are there by then, and so the number differs from run to run.
        """
        return TOUCH_EVERY if recording["policy"] == "cache_aware" else 1

    def begin(self) -> None:
        """So many ticks more."""
        if self.beginning:
            policy: Any = self.policy
            policy.ticks(self.beginning)

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        name = self.recording["policy"]
        if name not in self.policies:
            known = ", ".join((*self.policies, *self.refusing))
            raise InputError(f"unknown policy {name!r}", file=self.file, field="policy", expected=known)
        return self.policies[name]

    def make_policy(self) -> RoutingPolicy:
        """The policy, told of addresses and of requests that name their worker."""
        self.draws_lots = self.recording["policy"] not in self.hash_order
        if self.recording["policy"] in self.refusing:
            return _Refuses(self.content, len(self.slots))
        policy: Any = super().make_policy()
        if hasattr(policy, "urls"):
            urls = self.recording.get("urls", {})
            policy.urls = [urls.get(name, name) for name in self.slots]
        if hasattr(policy, "targets"):
            policy.targets = {i: t for i, step in enumerate(self.routes) if (t := _target(step)) is not None}
        return policy  # type: ignore[no-any-return]

    def units(self, step: Step) -> Sequence[int]:
        """Characters of the text that is matched: the prompt, token ids with spaces between, or the texts of all messages."""
        return text_units(step["routing_text"] if "routing_text" in step else _routing_text(step))

    def key(self, step: Step) -> str | None:
        """The routing key, or for consistent_hashing a header that stays the same."""
        headers = _headers(step)
        if key := headers.get("x-smg-routing-key"):
            return key
        if self.recording["policy"] == "consistent_hashing":
            return next((headers[name] for name in self.stable_headers if name in headers), None)
        return None

    def do_load_report(self, step: Step) -> None:
        """The workers have answered GET /get_load."""
        metrics = self.candidates.metrics
        for name, tokens in step["num_tokens"].items():
            metrics["tokens"][self.slots[name]] = tokens
            metrics["time"][self.slots[name]] = self.now


class SmgSteps(SglangRouterSteps):
    """smg: the same way to drive it, other rules; its debug log says more."""

    policies: ClassVar[dict[str, str]] = {
        "round_robin": "smg-round-robin",
        "random": "random",
        "cache_aware": "smg-cache-aware",
        "power_of_two": "smg-power-of-two",
        "least_load": "least-load",
        "consistent_hashing": "smg-consistent-hashing",
        "prefix_hash": "smg-prefix-hash",
        "manual": "smg-manual",
    }
    refusing: ClassVar[tuple[str, ...]] = ()
    hash_order: ClassVar[tuple[str, ...]] = ()
    stable_headers: ClassVar[tuple[str, ...]] = ()

    def make_policy(self) -> RoutingPolicy:
        """The policy, told which requests brought token ids."""
        policy: Any = super().make_policy()
        if hasattr(policy, "as_ids"):
            policy.as_ids = [self.by_ids(step) for step in self.routes]
        return policy  # type: ignore[no-any-return]

    def by_ids(self, step: Step) -> bool:
        """Whether the request's token ids are what the router looks at."""
        return bool(step.get("token_ids"))

    def units(self, step: Step) -> Sequence[int]:
        """Token ids, else characters."""
        return list(step["token_ids"]) if self.by_ids(step) else super().units(step)

    def compare(self, step: Step, decision: Decision) -> None:
        """The branch, and what matched."""
        got = {"branch": decision.branch, "matched_units": decision.matched, "input_units": decision.total}
        got["credited_units"] = decision.matched if decision.branch == "tree_match" else 0
        for name, value in got.items():
            if name in step:
                self.same(name, step[name], value)


class _Refuses(RoutingPolicy):
    """Allows no worker."""

    name = "refuses"
    product = "sglang-router 0.3.2"
    Settings = PolicySettings

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Nobody."""
        return Decision([], "no tokens", scores=np.full(self.workers, np.nan))


def _routing_text(step: Step) -> str:
    if step.get("token_ids"):
        return " ".join(map(str, step["token_ids"]))
    texts = []
    for message in step.get("body", {}).get("messages", ()):
        content = message["content"]
        texts += [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]
    return " ".join(texts) if texts else str(step.get("text", ""))


def _headers(step: Step) -> dict[str, str]:
    return {name.lower(): value for name, value in step.get("headers", {}).items()}


def _target(step: Step) -> int | None:
    """The worker that a header names; -1 for a number that is none."""
    value = _headers(step).get("x-smg-target-worker")
    if value is None:
        return None
    return int(value) if value.isascii() and value.isdigit() else -1
