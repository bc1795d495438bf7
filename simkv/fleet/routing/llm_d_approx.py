"""llm-d's endpoint picker with the default profile of its chart: approximate prefix cache 3, queue 2, KV cache utilization 2.

Product: llm-d-inference-scheduler (now llm-d-router), git 520af478 (2026-05-17): ``approx-prefix-cache-producer``
(pkg/epp/framework/plugins/requestcontrol/dataproducer/approximateprefix), ``prefix-cache-scorer``, ``queue-scorer``,
``kv-cache-utilization-scorer``, ``max-score-picker``, pkg/epp/scheduling/scheduler_profile.go.

* The prompt (bytes of the JSON or the text) is cut into blocks of ``block_size_tokens`` × 4 characters; a shorter last one counts,
  a prompt shorter than one block has none, and beyond ``max_prefix_blocks_to_match`` the prompt is cut off. Each block's hash
  holds model, cache salt and all blocks before it.
* A pod's known blocks are counted from the first block on as long as *some* pod has the block; a pod that lacks an early
  one still counts the later ones it has.
* Scores: known blocks ÷ blocks (0 without blocks); (longest queue - queue) ÷ (longest - shortest), 1 if all are equal;
  1 - KV cache usage; each limited to 0 … 1, times its weight, summed in that order. The highest sum wins, ties by lot.
* After the choice the pod's blocks become its most recent. A pod's list is as long as its KV cache has blocks when it is used first
  (``auto_tune``; else, and before it reported any, 31,250: at this commit ``lruCapacityPerServer`` has no effect).
* Every 2 minutes the lists of pods that are gone are dropped; a pod that is back earlier (same name) finds its list again.

With ``auto_tune`` the block size is what the first pod reports. Here it is settled by the first request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simkv.fleet.routing.chunk_lru import enlarged_lru, make_lru
from simkv.fleet.routing.chunk_trie import enlarged, make_trie
from simkv.fleet.routing.llm_d_approx_index import add, remove, score
from simkv.fleet.routing.namespaces import roots
from simkv.fleet.routing.policy import F8, HIGHER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.sequence import sequences
from simkv.settings.base import setting

CHARS_PER_TOKEN = 4
"""averageCharactersPerToken."""
CAPACITY = 31_250
"""defaultLRUCapacityPerServer."""
CLEAN_UP_S = 120.0
"""podActiveCheckInterval."""
NODES_AT_FIRST = 1024
OWN_NAMES = {
    "autoTune": "auto_tune",
    "blockSizeTokens": "block_size_tokens",
    "maxPrefixBlocksToMatch": "max_prefix_blocks_to_match",
    "maxPrefixTokensToMatch": "max_prefix_tokens_to_match",
}


@dataclass(frozen=True)
class ApproxPrefixSettings(PolicySettings):
    """Parameters of the producer (its JSON spelling is understood as well) and weights of the profile."""

    auto_tune: bool = setting(True, "take block size and length of the lists from the pods' metrics")
    block_size_tokens: int = setting(16, "tokens per block, of 4 characters each", min=1, max=65_536)
    max_prefix_blocks_to_match: int = setting(256, "blocks of a prompt that are looked at", min=1, max=1 << 24)
    max_prefix_tokens_to_match: int = setting(0, "the same in tokens; 0: in blocks", min=0, max=1 << 30)
    prefix_cache_scorer_weight: float = setting(3.0, "weight of the prefix score", min=0.0, max=1e6)
    queue_scorer_weight: float = setting(2.0, "weight of the queue score", min=0.0, max=1e6)
    kv_cache_utilization_scorer_weight: float = setting(2.0, "weight of the KV cache score", min=0.0, max=1e6)

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The names of the JSON configuration as field names."""
        return {OWN_NAMES.get(name, name): value for name, value in values.items()}

    def weights(self) -> F8:
        """Weights in the profile's order: queue, KV cache, prefix."""
        return np.array([self.queue_scorer_weight, self.kv_cache_utilization_scorer_weight, self.prefix_cache_scorer_weight])


class LlmDApproxPrefix(RoutingPolicy):
    """Weighted sum of approximate prefix match, queue and KV cache usage; highest wins, ties by lot."""

    name = "llm-d-approx-prefix"
    product = "llm-d inference scheduler (git 520af478)"
    Settings = ApproxPrefixSettings
    settings: ApproxPrefixSettings
    wants_metrics = True
    metrics_interval_s = 0.05  # --refresh-metrics-interval

    def setup(self) -> None:
        """No index yet: its block size comes with the first request."""
        self.block_tokens = 0
        self.prompts, self.units = sequences(self.content.workload), self.content.workload.num_prompt.astype(np.int64)
        self.roots = roots(self.content.workload, salts=True)
        self.weights = self.settings.weights()
        self.found, self._unscored = np.zeros(self.workers, np.int64), np.full(self.workers, np.nan)
        self.live: set[int] = set()
        self._listed: set[int] = set()
        self._order: list[int] = []

    @property
    def interval(self) -> float:
        """Seconds between clean-ups."""
        return CLEAN_UP_S

    def _start(self, block_tokens: int) -> None:
        s = self.settings
        self.block_tokens = block_tokens
        self.block = max(1, block_tokens * CHARS_PER_TOKEN // self.content.chars_per_token)
        most = s.max_prefix_tokens_to_match // block_tokens if s.max_prefix_tokens_to_match else s.max_prefix_blocks_to_match
        self.limits = np.where(self.units < self.block, 0, np.minimum(self.units, most * self.block)).tolist()
        self.trie = make_trie(NODES_AT_FIRST, -(-max(self.limits, default=0) // self.block))
        self.lru = make_lru(NODES_AT_FIRST, self.workers, CAPACITY)

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The pods with the highest sum."""
        self._metrics = c.metrics
        if not self.block_tokens:
            first = c.metrics[c.order[0]]
            reported = int(first["block_size"]) if self.settings.auto_tune and not np.isnan(first["time"]) else 0
            self._start(reported if reported > 0 else self.settings.block_size_tokens)
        if c.order != self._order:
            self._order = list(c.order)
            self._slots = np.array(c.order, np.int64)
        limit, scores = self.limits[req], self._unscored.copy()
        of = *self.trie, *self.prompts, *self.lru, req, self.block, limit, self.roots[req]
        best, blocks = score(*of, self._slots, c.metrics, self.weights, self.found, scores)
        allowed = [w for w, value in enumerate(scores.tolist()) if value == best]
        return Decision(allowed, "max score", min(blocks * self.block, limit), int(self.units[req]), scores, HIGHER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """The prompt's blocks are the pod's most recent."""
        if worker not in self._listed:
            self._listed.add(worker)
            pod = self._metrics[worker]
            reported = int(pod["capacity"]) if self.settings.auto_tune and not np.isnan(pod["time"]) else 0
            self.lru.lists["room"][worker] = reported if reported > 0 else CAPACITY
        limit, root = self.limits[req], self.roots[req]
        while not add(*self.trie, *self.prompts, *self.lru, req, self.block, limit, root, worker):
            self.trie, self.lru = enlarged(self.trie), enlarged_lru(self.lru)

    def add_worker(self, worker: int, now: float) -> None:
        """The pod is in the pool."""
        self.live.add(worker)

    def remove_worker(self, worker: int, now: float) -> None:
        """The pod is out of the pool; its list stays until the next clean-up."""
        self.live.discard(worker)

    def tick(self, now: float) -> None:
        """Drop the lists of pods that are gone."""
        for worker in self._listed - self.live:
            remove(self.lru, worker)
            self._listed.discard(worker)
