"""AIBrix's routing strategy ``prefix-cache``.

Product: AIBrix, git e3e10f9e (2026-08-22): pkg/plugins/gateway/algorithms/prefix_cache.go and util.go,
pkg/utils/prefixcacheindexer/hash.go, pkg/utils/lrustore/lru_store.go.

* Requests that run on a pod are those the gateway itself has sent and not seen finished. If the busiest pod has more than
  ``imbalance_abs_count`` above the least busy, only the least busy pods are candidates. (Later versions, from pull request 2365 on,
  have the gate before all strategies and ask for more: ``imbalance_gate = "factor"`` wants a gap of at least ``imbalance_min_gap``
  and, with three pods or more, that the busiest has more than ``imbalance_factor`` × (mean of the others + 1).)
* The prompt (bytes with the default tokenizer "character") is cut into blocks of ``block_size`` bytes, each hashed with all
  before it; a shorter last one is left out. A candidate's match is the share of blocks it has from the first on, in whole percent.
* Pods in order of match (highest first), then of running requests (fewest first), then by lot: the first whose running requests
  are at most mean + ``standard_deviation_factor`` × standard deviation (sample, over all pods) gets the request; if there is none,
  or no match, the pod with the fewest running requests, by lot.
* All blocks become the most recent of one table of ``block_number`` blocks for all pods together: 200,000 blocks of 4 bytes are
  800 kB of prompts. Of a prompt its *first* blocks are dropped first, so what is left of it is not found any more. A block that
  comes back knows only the pod that brought it back. Blocks unused for ``eviction_duration_mins`` go at the next clean-up.
* Pods that leave are not forgotten: what they had counts again if they come back under the same name.

A prompt of an adapter counts as one of another model; in the real table both share the block, here they are two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.fleet.routing.aibrix_index import BRANCHES, FACTOR, GAP, MATCH, RULES, add, choose, expire
from simkv.fleet.routing.chunk_lru import enlarged_lru, make_lru
from simkv.fleet.routing.chunk_trie import enlarged, make_trie
from simkv.fleet.routing.namespaces import roots
from simkv.fleet.routing.policy import HIGHER, LOWER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.sequence import sequences
from simkv.fleet.routing.worker_sets import no_sets
from simkv.settings.base import setting

NODES_AT_FIRST = 1024


@dataclass(frozen=True)
class AibrixPrefixCacheSettings(PolicySettings):
    """Environment variables AIBRIX_PREFIX_CACHE_… (of the gate: AIBRIX_LOAD_BALANCE_… for ``factor``)."""

    block_size: int = setting(4, "bytes per block", min=1, max=1 << 20)
    block_number: int = setting(200_000, "blocks in the table, all pods together", min=1, max=1 << 30)
    eviction_duration_mins: float = setting(20.0, "minutes after which an unused block goes", min=0.001, max=1e6)
    eviction_interval_seconds: float = setting(1.0, "seconds between clean-ups", min=0.001, max=86_400.0)
    standard_deviation_factor: int = setting(1, "standard deviations above the mean that a matching pod may have", min=0, max=1000)
    imbalance_gate: str = setting("gap", "when only the least busy pods are candidates", choices=("gap", "factor"))
    imbalance_abs_count: int = setting(8, "gap: requests more than the least busy pod has", min=0, max=1 << 30)
    imbalance_factor: float = setting(2.0, "factor: times the others' mean + 1", min=0.0, max=1e6)
    imbalance_min_gap: int = setting(8, "factor: requests at least between busiest and least busy", min=0, max=1 << 30)


class AibrixPrefixCache(RoutingPolicy):
    """Longest prefix of 4-byte blocks on a pod that is not too busy, else the least busy pod."""

    name = "aibrix-prefix-cache"
    product = "AIBrix (git e3e10f9e)"
    Settings = AibrixPrefixCacheSettings
    settings: AibrixPrefixCacheSettings

    def setup(self) -> None:
        """An empty table."""
        self.block = max(1, round(self.settings.block_size / self.content.chars_per_token))
        self.prompts, self.roots = sequences(self.content.workload), roots(self.content.workload, salts=False)
        self.limits = (self.content.workload.num_prompt.astype(np.int64) // self.block * self.block).tolist()
        self.trie = make_trie(NODES_AT_FIRST, max(self.limits, default=0) // self.block)
        self.lru = make_lru(NODES_AT_FIRST, 1, self.settings.block_number)
        self.pods = no_sets(NODES_AT_FIRST, self.workers)
        self.times = np.zeros(NODES_AT_FIRST)
        self.ready = no_sets(1, self.workers)[0]
        self.found, self.chosen = np.zeros(self.workers, np.int64), np.zeros(self.workers, np.int64)
        self._unscored = np.full(self.workers, np.nan)
        self._order: list[int] = []
        s = self.settings
        gate = GAP if s.imbalance_gate == "gap" else FACTOR
        rules = (gate, s.imbalance_abs_count, s.imbalance_min_gap, s.imbalance_factor, s.standard_deviation_factor)
        self.rules = np.array([rules], RULES)

    @property
    def interval(self) -> float:
        """Seconds between clean-ups."""
        return self.settings.eviction_interval_seconds

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The best match that is not too busy, else the least busy."""
        if c.order != self._order:
            self._order = list(c.order)
            self._slots = np.array(c.order, np.int64)
        limit, scores = self.limits[req], self._unscored.copy()
        of = *self.trie, *self.prompts, *self.lru, self.pods, req, self.block, limit, self.roots[req]
        n, branch, blocks = choose(*of, self._slots, c.inflight, self.rules, self.ready, self.found, scores, self.chosen)
        best = HIGHER if branch == MATCH else LOWER
        return Decision(self.chosen[:n].tolist(), BRANCHES[branch], blocks * self.block, limit, scores, best)

    def commit(self, req: int, worker: int, now: float) -> None:
        """The prompt's blocks are the most recent, and the pod has them."""
        what = req, self.block, self.limits[req], self.roots[req]
        while not add(*self.trie, *self.prompts, *self.lru, self.pods, self.times, *what, worker, now):
            self.trie, self.lru = enlarged(self.trie), enlarged_lru(self.lru)
            self.pods = np.concatenate([self.pods, np.zeros_like(self.pods)])
            self.times = np.concatenate([self.times, np.zeros_like(self.times)])

    def tick(self, now: float) -> None:
        """Drop blocks that were not used for too long."""
        expire(*self.lru, self.times, now - 60.0 * self.settings.eviction_duration_mins)
