"""llm-d's endpoint picker with its precise prefix cache: 2, queue 1, KV cache utilization 1 (the sample configuration).

Product: llm-d-inference-scheduler (now llm-d-router), git 520af478 (2026-05-17): ``precise-prefix-cache-scorer``; its index is
llm-d-kv-cache-manager, git a378f5b3 (2025-12-10): pkg/kvcache/kvblock_scorer.go, pkg/kvcache/kvblock/in_memory.go. Read from source,
not recorded.

* Pods publish KV events; the index keeps, for each block of tokens, the pods that have it, the 10 latest at most (``pod_cache_size``).
* A pod's score: how many blocks of the prompt it has without a gap from the first on, ÷ full blocks of the prompt (a block on the
  GPU weighs 1; there is no other tier here); 0 for a prompt shorter than a block.
* (longest queue - queue) ÷ (longest - shortest), 1 if all are equal; 1 - KV cache usage. The weighted sum decides, ties by lot.
* With ``speculative_indexing`` the prompt's blocks also count for the pod chosen, for ``speculative_ttl`` seconds (here without a
  place among the latest pods of a block).

The index's bound of 100 million keys is never reached here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.prompt_tree import PromptTree
from simkv.fleet.kv.request_keys import request_keys
from simkv.fleet.routing.kv_scores import weighted_sums
from simkv.fleet.routing.policy import HIGHER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.settings.base import setting

OWN_NAMES = {
    "blockSize": "block_size",
    "podCacheSize": "pod_cache_size",
    "speculativeIndexing": "speculative_indexing",
    "speculativeTTL": "speculative_ttl",
}


@dataclass(frozen=True)
class PrecisePrefixSettings(PolicySettings):
    """Parameters of the scorer (its JSON spelling is understood as well) and weights of the profile."""

    block_size: int = setting(16, "tokens per block: the engine's", min=1, max=65_536)
    pod_cache_size: int = setting(10, "pods kept per block", min=1, max=65_536)
    speculative_indexing: bool = setting(False, "count a prompt's blocks at the pod chosen before its events say so")
    speculative_ttl: float = setting(2.0, "seconds for which they count", min=0.0, max=1e6)
    precise_prefix_cache_scorer_weight: float = setting(2.0, "weight of the prefix score", min=0.0, max=1e6)
    kv_cache_utilization_scorer_weight: float = setting(1.0, "weight of the KV cache score", min=0.0, max=1e6)
    queue_scorer_weight: float = setting(1.0, "weight of the queue score", min=0.0, max=1e6)

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The names of the JSON configuration as field names."""
        return {OWN_NAMES.get(name, name): value for name, value in values.items()}


class LlmDPrecisePrefix(RoutingPolicy):
    """Weighted sum of what pods have cached, queue and KV cache usage; highest wins, ties by lot."""

    name = "llm-d-precise-prefix"
    product = "llm-d inference scheduler (git 520af478), kv-cache-manager (git a378f5b3)"
    Settings = PrecisePrefixSettings
    settings: PrecisePrefixSettings
    wants_metrics = True
    wants_kv_events = True
    metrics_interval_s = 0.05  # --refresh-metrics-interval

    def setup(self) -> None:
        """An empty index."""
        w, s = self.content.workload, self.settings
        self.keys = request_keys(w, s.block_size)
        self.tokens = w.num_prompt.tolist()
        self.index = KVIndex(self.workers, most=s.pod_cache_size)
        self.guesses = PromptTree(self.keys, len(w), self.workers, True) if s.speculative_indexing else None
        self.found, self.guessed = np.zeros(self.workers, np.int32), np.zeros(self.workers, np.int32)
        self._unscored, self._order = np.full(self.workers, np.nan), list[int]()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The pods with the highest sum."""
        s, blocks = self.settings, self.tokens[req] // self.settings.block_size
        self.index.count(self.keys, req, self.found)
        if self.guesses is not None:
            self.guesses.count(req, now, self.guessed)
            np.maximum(self.found, self.guessed, out=self.found)
        if c.order != self._order:
            self._order, self._slots = list(c.order), np.array(c.order, np.int64)
        sums = self._unscored.copy()
        weights = s.precise_prefix_cache_scorer_weight, s.kv_cache_utilization_scorer_weight, s.queue_scorer_weight
        known = self.found, blocks, self._slots, c.metrics["waiting"], c.metrics["kv_usage"]
        best, found = weighted_sums(*known, *weights, sums)
        each = sums.tolist()
        allowed = [w for w in c.order if each[w] == best]
        return Decision(allowed, "max score", found * s.block_size, self.tokens[req], sums, HIGHER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """The prompt's blocks count for the pod for a while, if that is wanted."""
        if self.guesses is not None:
            blocks = self.tokens[req] // self.settings.block_size
            self.guesses.reserve(req, worker, 0, blocks, now, now + self.settings.speculative_ttl)
            self.guesses.finish(req, now)

    def add_worker(self, worker: int, now: float) -> None:
        """It starts empty."""
        self.remove_worker(worker, now)

    def remove_worker(self, worker: int, now: float) -> None:
        """Its blocks are forgotten."""
        self.index.forget(worker)
        if self.guesses is not None:
            self.guesses.leave(worker, now)

    @property
    def kv_index(self) -> KVIndex:
        """Blocks that entered and left the pods' caches."""
        return self.index
