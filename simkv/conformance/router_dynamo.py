"""Recordings of NVIDIA Dynamo's SelectionService, driven in process with KV events over ZMQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simkv.conformance.router_steps import RouterSteps, Step
from simkv.errors import InputError
from simkv.fleet.kv.index import CLEARED, REMOVED, STORED
from simkv.fleet.routing.dynamo_kv import DynamoKv
from simkv.fleet.routing.policy import Decision, KVEvents, PolicySettings

ENVIRONMENT = {
    "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT": "overlap_score_credit",
    "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY": "overlap_score_credit_decay",
    "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT": "overlap_score_weight",
    "DYN_ROUTER_PREFILL_LOAD_SCALE": "prefill_load_scale",
    "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT": "decode_active_request_weight",
    "DYN_ROUTER_TEMPERATURE": "router_temperature",
    "DYN_ROUTER_USE_KV_EVENTS": "use_kv_events",
    "DYN_ROUTER_TTL_SECS": "router_ttl_secs",
    "DYN_ROUTER_TRACK_ACTIVE_BLOCKS": "router_track_active_blocks",
    "DYN_ROUTER_TRACK_OUTPUT_BLOCKS": "router_track_output_blocks",
    "DYN_ROUTER_TRACK_PREFILL_TOKENS": "router_track_prefill_tokens",
}
"""Environment variable of the router -> setting."""
DIGITS = 9
"""Costs are compared to so many digits behind the point."""


class DynamoSteps(RouterSteps):
    """Dynamo: overlap, loads before and with the request, and the winner's cost stand beside each decision. Workers are numbers."""

    def __init__(self, recording: Mapping[str, Any], file: str) -> None:
        steps = [{**step, "worker": str(step["worker"])} if "worker" in step else step for step in recording["steps"]]
        self.listed = [step for step in steps if step["op"] in ("kv_stored", "kv_removed")]
        self.content_of = {id(step): i for i, step in enumerate(self.listed)}
        super().__init__({**recording, "steps": steps, "workers": [str(name) for name in recording.get("workers", ())]}, file)

    def policy_name(self) -> str:
        """The recorded policy under simkv's name."""
        if self.recording["policy"] != "kv":
            raise InputError(f"unknown policy {self.recording['policy']!r}", file=self.file, field="policy", expected="kv")
        return "dynamo-kv"

    def settings(self, known: type[PolicySettings]) -> dict[str, Any]:
        """The environment the service ran in."""
        out: dict[str, Any] = {"block_size": int(self.recording["block_size"])}
        for name, value in self.recording.get("config", {}).items():
            if name not in ENVIRONMENT:
                raise InputError(f"unknown variable {name}", file=self.file, field="config", expected=", ".join(ENVIRONMENT))
            text = str(value).lower()
            out[ENVIRONMENT[name]] = text == "true" if text in ("true", "false") else float(text)
        return out

    def contents(self) -> list[Step]:
        """The routed prompts, then what KV events are about."""
        return [*self.routes, *self.listed]

    def units(self, step: Step) -> Sequence[int]:
        """Token ids."""
        tokens: Sequence[int] = step["tokens"]
        return tokens

    @property
    def dynamo(self) -> DynamoKv:
        """The policy."""
        assert isinstance(self.policy, DynamoKv)
        return self.policy

    def loads(self, req: int | None = None) -> dict[str, list[int]]:
        """Prefill tokens, decode blocks and requests by worker, with request ``req`` if one is named."""
        policy, order = self.dynamo, self.candidates.order
        load = policy.tree.state.workers
        out = {}
        for name, w in zip(self.names(order), order, strict=True):
            prefill, blocks = int(load[w].prefill), int(np.floor(load[w].units + 0.5))
            if req is not None:
                blocks += policy.tokens[req] // policy.settings.block_size - int(policy.held[w])
                missing = policy.tokens[req] - int(policy.overlap[w]) * policy.settings.block_size
                prefill += missing if policy.settings.router_track_prefill_tokens else 0
            out[name] = [prefill, blocks, int(load[w].requests)]
        return out

    def do_route(self, step: Step) -> None:
        """One decision, and the loads before it."""
        self.now = float(step.get("time", self.now))
        if "loads_before" in step:
            self.same("loads_before", step["loads_before"], self.loads())
        super().do_route(step)

    def compare(self, step: Step, decision: Decision) -> None:
        """What the workers had cached, what their loads would be, and what the choice costs."""
        policy, slot = self.dynamo, self.slots[step["worker"]]
        scores = decision.scores
        assert scores is not None
        known: dict[str, Any] = {
            "overlap_blocks": self.by_name(policy.overlap, step.get("overlap_blocks", {})),
            "potential": self.loads(self.requests[id(step)]),
            "longest_matched": int(policy.overlap[slot]) * policy.settings.block_size,
            "logit": round(float(scores[slot]), DIGITS),
        }
        for name, got in known.items():
            if step.get(name) is not None:
                self.same(name, round(step[name], DIGITS) if name == "logit" else step[name], got)

    def take(self, req: int, slot: int, hold: bool) -> None:
        """A plain selection leaves nothing behind; a reservation stays until it is freed."""
        if self.routes[req].get("reserve", True):
            self.policy.commit(req, slot, self.now)

    def request(self, step: Step) -> int:
        """Number of the request a step names."""
        return self.number[str(step["id"])]

    def do_prefill_complete(self, step: Step) -> None:
        """A prompt is computed."""
        self.policy.first_token(self.request(step), -1, self.now)

    def do_free(self, step: Step) -> None:
        """A reservation ends."""
        self.policy.finished(self.request(step), -1, self.now)

    def do_output_block(self, step: Step) -> None:
        """A request reports a block of output."""
        self.dynamo.output_block(self.request(step), step.get("decay"))

    def keys_of(self, step: Step) -> list[int]:
        """Chain keys of a step's tokens, all full blocks."""
        return [int(key) for key in self.dynamo.keys.of(len(self.routes) + self.content_of[id(step)])]

    def do_kv_stored(self, step: Step) -> None:
        """A worker cached blocks, from ``from_block`` (before ``to_block``)."""
        keys, first = self.keys_of(step), int(step.get("from_block", 0))
        self.event(step, STORED, keys[first : step.get("to_block")], keys[first - 1] if first else 0)

    def do_kv_removed(self, step: Step) -> None:
        """A worker's cache lost blocks: those listed, or all from ``from_block`` on (before ``to_block``)."""
        keys = self.keys_of(step)
        listed = step.get("blocks", step.get("block"))
        if listed is None:
            gone = keys[int(step.get("from_block", 0)) : step.get("to_block")]
        else:
            gone = [keys[int(i)] for i in (listed if isinstance(listed, list) else [listed])]
        self.event(step, REMOVED, gone, 0)

    def do_kv_cleared(self, step: Step) -> None:
        """A worker's cache was emptied."""
        self.event(step, CLEARED, [0], 0)

    def event(self, step: Step, kind: int, keys: list[int], parent: int) -> None:
        """Hand one event to the policy, with the block before its first."""
        if keys:
            kinds = np.full(len(keys), kind, np.uint8)
            batch = KVEvents(kinds, np.array(keys, np.uint64), self.dynamo.settings.block_size, {"first": [0], "parents": [parent]})
            self.policy.kv_events(self.slots[step["worker"]], batch)
