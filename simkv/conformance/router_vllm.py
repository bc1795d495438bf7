"""Recordings of vllm-router 0.1.17: its tree in the router's own characters, a header and eight hexadecimal digits a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simkv.conformance.router_steps import RouterSteps, Step, text_units
from simkv.errors import InputError
from simkv.fleet.routing.fbi_hash import fbi_hashes
from simkv.fleet.routing.policy import Decision, RoutingPolicy
from simkv.fleet.routing.vllm_router_cache_aware import DIGITS, MATCH, VllmRouterText

HEADER = list(b"tokens")
"""Six characters; which, nobody sees."""
SHORT_TEXT = 100
"""Bytes up to which consistent_hash takes the text itself."""


class VllmRouterSteps(RouterSteps):
    """vllm-router, whose workers tokenise: in the recordings a character is a token and its code point the token's id.

    A step with ``tokens`` sent ids instead of text. Ids in a field that the router does not read (``token_ids`` beside an empty
    text) are no tokens.
    """

    policies: ClassVar[dict[str, str]] = {
        "cache_aware": "vllm-router-cache-aware",
        "consistent_hash": "vllm-router-consistent-hash",
        "sticky_least_loaded": "vllm-router-sticky-least-loaded",
        "round_robin": "round-robin",
        "random": "random",
        "power_of_two": "power-of-two",
    }
    session_headers: ClassVar[tuple[str, ...]] = (
        "x-session-id",
        "x-user-id",
        "x-tenant-id",
        "x-correlation-id",
        "x-request-id",
        "x-trace-id",
    )
    """What may name a session, the first one first."""

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        name = self.recording["policy"]
        if name not in self.policies:
            raise InputError(f"unknown policy {name!r}", file=self.file, field="policy", expected=", ".join(self.policies))
        return self.policies[name]

    def make_policy(self) -> RoutingPolicy:
        """The policy over the router's text, told the addresses and what it hashed."""
        if self.recording["policy"] == "cache_aware":
            known = VllmRouterText.Settings
            return VllmRouterText(self.content, len(self.slots), known.from_mapping(self.settings(known)))
        policy: Any = super().make_policy()
        if hasattr(policy, "urls"):
            urls = self.recording.get("urls", {})
            policy.urls = [urls.get(name, name) for name in self.slots]
            policy.keys = {i: self.hashed(step) for i, step in enumerate(self.routes)}
        return policy  # type: ignore[no-any-return]

    def units(self, step: Step) -> Sequence[int]:
        """The text that the router keeps of a request; nothing for one without tokens."""
        tokens = step["tokens"] if "tokens" in step else text_units(step.get("routing_text", step.get("text", "")))
        return [*HEADER, *(ord(digit) for token in tokens for digit in f"{token:0{DIGITS}x}")] if tokens else []

    def key(self, step: Step) -> str | None:
        """The session, by its header."""
        header = self.session_header(step)
        return _headers(step)[header] if header else None

    def session_header(self, step: Step) -> str | None:
        """The header that names the session."""
        given = _headers(step)
        return next((name for name in self.session_headers if given.get(name)), None)

    def hashed(self, step: Step) -> str:
        """What is hashed: for consistent_hash header and session or a text's own key; for sticky_least_loaded the text."""
        text = step.get("text", "")
        if self.recording["policy"] == "sticky_least_loaded":
            return str(text)
        if header := self.session_header(step):
            return f"header:{header}:{_headers(step)[header]}"
        return f"request:{text}" if len(text.encode()) <= SHORT_TEXT else f"request_hash:{fbi_hashes([text])[0]:016x}"

    def compare(self, step: Step, decision: Decision) -> None:
        """The share that the router's log says matched at the worker it chose."""
        if "match_rate" in step and decision.branch == MATCH:
            self.same("match_rate", step["match_rate"], decision.matched / decision.total)


def _headers(step: Step) -> dict[str, str]:
    return {name.lower(): value for name, value in step.get("headers", {}).items()}
