"""Recordings of sglang-router 0.3.2 and of its successor smg 1.13.0: which policy, which key, which text."""

from __future__ import annotations

from typing import ClassVar

from simkv.conformance.router_steps import RouterSteps
from simkv.errors import InputError


class SglangRouterSteps(RouterSteps):
    """sglang-router: requests over HTTP, workers by URL."""

    policies: ClassVar[dict[str, str]] = {
        "round_robin": "round-robin",
        "random": "random",
        "cache_aware": "sglang-cache-aware",
    }

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        name = self.recording["policy"]
        if name not in self.policies:
            raise InputError(f"unknown policy {name!r}", file=self.file, field="policy", expected=", ".join(self.policies))
        return self.policies[name]


class SmgSteps(SglangRouterSteps):
    """smg: the same way to drive it, other rules."""
