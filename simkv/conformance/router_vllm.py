"""Recordings of vllm-router 0.1.17: its tree in the router's own characters, a header and eight hexadecimal digits a token."""

from __future__ import annotations

from collections.abc import Sequence

from simkv.conformance.router_steps import RouterSteps, Step, text_units
from simkv.errors import InputError
from simkv.fleet.routing.policy import Decision, RoutingPolicy
from simkv.fleet.routing.vllm_router_cache_aware import DIGITS, MATCH, VllmRouterText

HEADER = list(b"tokens")
"""Six characters; which, nobody sees."""


class VllmRouterSteps(RouterSteps):
    """vllm-router, whose workers tokenise: in the recordings a character is a token and its code point the token's id.

    A step with ``tokens`` sent ids instead of text. Ids in a field that the router does not read (``token_ids`` beside an empty
    text) are no tokens.
    """

    draws_lots = False

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        if self.recording["policy"] != "cache_aware":
            raise InputError(f"unknown policy {self.recording['policy']!r}", file=self.file, field="policy", expected="cache_aware")
        return "vllm-router-cache-aware"

    def make_policy(self) -> RoutingPolicy:
        """The policy over the router's text."""
        return VllmRouterText(self.content, len(self.slots), VllmRouterText.Settings.from_mapping(self.settings(VllmRouterText.Settings)))

    def units(self, step: Step) -> Sequence[int]:
        """The text that the router keeps of a request; nothing for one without tokens."""
        tokens = step["tokens"] if "tokens" in step else text_units(step.get("routing_text", step.get("text", "")))
        return [*HEADER, *(ord(digit) for token in tokens for digit in f"{token:0{DIGITS}x}")] if tokens else []

    def compare(self, step: Step, decision: Decision) -> None:
        """The share that the router's log says matched at the worker it chose."""
        if "match_rate" in step and decision.branch == MATCH:
            self.same("match_rate", step["match_rate"], decision.matched / decision.total)
