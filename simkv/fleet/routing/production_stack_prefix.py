"""vLLM production-stack's ``--routing-logic prefixaware``.

Product: git a6c01db0 (2026-08-05), ``PrefixAwareRouter`` of src/vllm_router/routers/routing_logic.py and
src/vllm_router/prefix/hashtrie.py. The prompt is cut into chunks of 128 characters, a short last one included and counted as
128. From the first chunk on, the endpoints that had each chunk are kept as long as one of the available ones is left;
the real router draws among those (all available ones when not even the first chunk is known). If fewer characters matched than
``prefix_min_match_length``, the endpoint with the lowest rate of requests gets it instead. Either way the prompt is
remembered for the endpoint. Nothing is ever forgotten, not even of an endpoint that left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.fleet.routing.chunk_owners import insert, match
from simkv.fleet.routing.chunk_trie import enlarged, make_trie
from simkv.fleet.routing.policy import Candidates, Decision, RoutingPolicy
from simkv.fleet.routing.production_stack_rates import RateSettings, RequestRates, lowest_qps
from simkv.fleet.routing.sequence import sequences
from simkv.fleet.routing.worker_sets import fill, no_sets
from simkv.settings.base import setting

CHUNK = 128
"""Characters."""
NODES_AT_FIRST = 1024


@dataclass(frozen=True)
class PrefixAwareSettings(RateSettings):
    """The router's ``--prefix-min-match-length``."""

    prefix_min_match_length: int = setting(0, "matched characters below which the lowest rate of requests decides", min=0, max=1 << 30)


class ProductionStackPrefixAware(RoutingPolicy):
    """Longest known prefix of 128-character chunks; lots among those that had it."""

    name = "production-stack-prefixaware"
    product = "vLLM production-stack (git a6c01db0)"
    Settings = PrefixAwareSettings
    settings: PrefixAwareSettings

    def setup(self) -> None:
        """An empty trie; no requests sent."""
        self.chunk = max(1, CHUNK // self.content.chars_per_token)
        self.prompts = sequences(self.content.workload)
        longest = int(self.content.workload.num_prompt.max(initial=0))
        self.trie = make_trie(NODES_AT_FIRST, -(-longest // self.chunk))
        self.owners = no_sets(NODES_AT_FIRST, self.workers)
        self.rates = RequestRates(self.workers, self.settings.request_stats_window)
        self.available = no_sets(1, self.workers)[0]
        self.selected = self.available.copy()
        self._order: list[int] = []

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Those that had the longest prefix, or the lowest rate."""
        if c.order != self._order:
            self._order = list(c.order)
            fill(self.available, c.order)
        selected = self.selected
        selected[:] = self.available
        chunks = match(*self.trie, *self.prompts, self.owners, req, self.chunk, selected)
        total = int(self.content.workload.num_prompt[req])
        matched = min(chunks * self.chunk, total)
        if chunks * CHUNK < self.settings.prefix_min_match_length:
            d = lowest_qps(c.order, self.rates, now, self.workers)
            d.matched, d.total = matched, total
            return d
        if not chunks:
            return Decision(c.order, "no match", 0, total)
        words = selected.tolist()
        return Decision([w for w in c.order if words[w >> 6] >> (w & 63) & 1], "longest prefix", matched, total)

    def commit(self, req: int, worker: int, now: float) -> None:
        """Remember the prompt for the worker; count the request."""
        self.rates.on_new_request(worker, now)
        while not insert(*self.trie, *self.prompts, self.owners, req, self.chunk, worker):
            self.trie = enlarged(self.trie)
            self.owners = np.concatenate([self.owners, np.zeros_like(self.owners)])
