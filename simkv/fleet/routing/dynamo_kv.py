"""NVIDIA Dynamo's KV router (ai-dynamo-runtime 1.6.1, lib/kv-router/src/scheduling/selector.rs and sequences/).

Every worker has a cost in blocks; the lowest wins, equal ones by lot:

    prefill_load_scale * max(0, (prefill_tokens + prompt) / block - credit * cached_blocks) + decode_blocks
        + decode_active_request_weight * active_requests

* prefill_tokens: of the requests this router sent to the worker, the prompt tokens it did not believe cached, until the first token;
* cached_blocks: leading blocks of the prompt the index says the worker has;
* decode_blocks: different full blocks of the prompts under way at the worker and of the new one together, and reported output
  blocks, rounded;
* credit = overlap_score_credit / (1 + decay * d), d: prefill tokens above the least loaded worker's, in blocks, ÷ the prompt's blocks.

With a temperature, workers are drawn by softmax(-cost / ((highest - lowest) * temperature)). The index follows the workers' KV
events (kv/dynamo_tree.py), or, without them, what this router sent where, for router_ttl_secs. Output blocks count only when reported,
which nobody does in a simulation. Not modelled: the router's queue (router_queue_threshold is off by default in the service),
host and disk tiers, shared caches, expiry of requests after an hour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.fleet.kv.dynamo_cost import COST, costs
from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.prompt_tree import PromptTree
from simkv.fleet.kv.request_keys import request_keys
from simkv.fleet.routing.policy import LOWER, METRICS, Candidates, Decision, KVEvents, PolicySettings, RoutingPolicy
from simkv.settings.base import setting


@dataclass(frozen=True)
class DynamoKvSettings(PolicySettings):
    """Settings of KvRouterConfig by their names."""

    block_size: int = setting(16, "tokens per block: the engine's", min=1, max=65_536)
    overlap_score_credit: float = setting(1.0, "how much of a block a cached block saves", min=0.0, max=1e9)
    overlap_score_credit_decay: float = setting(0.0, "how fast that shrinks with the backlog of prompts", min=0.0, max=1e9)
    prefill_load_scale: float = setting(1.0, "weight of prompt work against blocks held", min=0.0, max=1e9)
    overlap_score_weight: float | None = setting(
        None, "old name of prefill_load_scale; if given it is taken, and 0 also sets the credit to 0", min=0.0, max=1e9
    )
    decode_active_request_weight: float = setting(0.0, "blocks each active request counts besides", min=0.0, max=1e9)
    router_temperature: float = setting(0.0, "0 takes the cheapest worker, more draws lots by cost", min=0.0, max=1e9)
    use_kv_events: bool = setting(True, "follow the workers' KV events; else believe cached what was sent")
    router_ttl_secs: float = setting(120.0, "for how long what was sent is believed cached", min=0.0, max=1e9)
    router_track_prefill_tokens: bool = setting(True, "whether prompt work counts")
    router_track_active_blocks: bool = setting(True, "taken and without effect, as in SelectionService 1.6.1")
    router_track_output_blocks: bool = setting(False, "taken and without effect, as in SelectionService 1.6.1")


class DynamoKv(RoutingPolicy):
    """The lowest cost in blocks: prompt work that is not cached, and blocks held; ties by lot."""

    name = "dynamo-kv"
    product = "NVIDIA Dynamo KV router (ai-dynamo-runtime 1.6.1)"
    Settings = DynamoKvSettings
    settings: DynamoKvSettings
    wants_first_tokens = True
    wants_kv_events = True

    def setup(self) -> None:
        """Empty index, no requests under way."""
        s = self.settings
        old = s.overlap_score_weight
        self.cost = np.zeros(1, COST)
        self.cost[0] = (
            0.0 if old == 0 else s.overlap_score_credit,
            s.overlap_score_credit_decay,
            s.prefill_load_scale if old is None else old,
            s.decode_active_request_weight,
            s.router_track_prefill_tokens,
            not s.use_kv_events,
        )
        w = self.content.workload
        self.keys = request_keys(w, s.block_size)
        self.tokens = w.num_prompt.tolist()
        self.tree = PromptTree(self.keys, len(w), self.workers, not s.use_kv_events)
        self.index = KVIndex(self.workers)
        self.overlap, self.held = np.zeros(self.workers, np.int32), np.zeros(self.workers, np.int32)
        self.best, self.unscored = np.zeros(self.workers, np.int64), np.full(self.workers, np.nan)
        self.order, self.live = np.zeros(0, np.int64), list[int]()
        self.decided = -1

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The cheapest workers; with a temperature all, by weight."""
        if c.order != self.live:
            self.live, self.order = list(c.order), np.array(c.order, np.int64)
        scores = self.unscored.copy()
        if self.settings.use_kv_events:
            self.index.count(self.keys, req, self.overlap)
        found = self.overlap, self.held, scores, self.best
        n = costs(*self.tree.state, *self.keys.state, req, self.order, now, self.cost, *found)
        self.decided = req
        allowed, weights = self.best[:n].tolist(), None
        if self.settings.router_temperature > 0:
            allowed, weights = self.live, softmax(scores[self.order], self.settings.router_temperature)
        cached = [blocks * self.settings.block_size for blocks in self.overlap.tolist()]
        matched = max(cached[w] for w in self.live)
        return Decision(allowed, "kv", matched, self.tokens[req], scores, LOWER, weights, cached)

    def commit(self, req: int, worker: int, now: float) -> None:
        """The request's prompt and blocks are the worker's load until it is done."""
        s, tokens = self.settings, self.tokens[req]
        if self.decided != req:
            self.decide(req, now, Candidates([worker], np.zeros(0, np.int64), np.zeros(0, METRICS)))
        cached = int(self.overlap[worker]) * s.block_size
        prefill = max(tokens - cached, 0) if s.router_track_prefill_tokens else 0
        self.tree.reserve(req, worker, prefill, tokens // s.block_size, now, now + s.router_ttl_secs)
        self.decided = -1

    def first_token(self, req: int, worker: int, now: float) -> None:
        """The prompt is computed (prefill_complete)."""
        self.tree.prefilled(req)

    def finished(self, req: int, worker: int, now: float) -> None:
        """The request's load is gone (free_reservation)."""
        self.tree.finish(req, now)

    def output_block(self, req: int, decay_fraction: float | None = None) -> None:
        """One more block of output is reported (add_output_block)."""
        self.tree.report_output(req, decay_fraction)

    def add_worker(self, worker: int, now: float) -> None:
        """It starts empty."""
        self.remove_worker(worker, now)

    def remove_worker(self, worker: int, now: float) -> None:
        """Its blocks and its load are forgotten."""
        self.index.forget(worker)
        self.tree.leave(worker, now)
        self.decided = -1

    @property
    def kv_index(self) -> KVIndex | None:
        """Blocks that entered and left the workers' caches."""
        return self.index if self.settings.use_kv_events else None

    def kv_events(self, worker: int, batch: KVEvents) -> None:
        """What the last decision found counts no more."""
        super().kv_events(worker, batch)
        self.decided = -1


def softmax(costs: np.ndarray, temperature: float) -> list[float]:
    """Chances of the workers by cost; equal ones have equal chances."""
    low, high = float(costs.min()), float(costs.max())
    if low == high:
        return [1.0] * len(costs)
    chances: list[float] = np.exp((low - costs) / ((high - low) * temperature)).tolist()
    return chances
