"""vLLM production-stack's loadaware: cache hits against load (pull request 1035, merged in August 2026).

Source: src/vllm_router/routers/routing_logic.py, LoadAwareRouter. Every endpoint has a score; the highest wins, of equal ones the
first by URL:

    score = min(matched tokens, prompt tokens) / prompt tokens - beta * (load - mean load) / max(1, mean load)

* load: requests that this router has in flight there, prefilling and decoding; the mean is over all endpoints;
* matched tokens: what LMCache's controller says the endpoint holds of the prompt. Here it is told by the engine's KV events, in blocks
  of ``block_size``; LMCache itself speaks of chunks of 256 tokens in its own store.

If no endpoint holds anything of the prompt, the request goes by session, or without one to the lowest rate of requests, as in
production-stack's other routers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.request_keys import request_keys
from simkv.fleet.routing.kv_scores import less_load
from simkv.fleet.routing.policy import HIGHER, Candidates, Decision
from simkv.fleet.routing.production_stack_rates import RateSettings
from simkv.fleet.routing.production_stack_simple import ProductionStackSession
from simkv.settings.base import setting


@dataclass(frozen=True)
class LoadAwareSettings(RateSettings):
    """``--loadaware-beta``, and the size of what the caches report."""

    beta: float = setting(1.0, "full cache hits that an endpoint loses when it has twice the mean load", min=0.0, max=1e6)
    block_size: int = setting(16, "tokens per block in the KV events: the engine's", min=1, max=65_536)


class ProductionStackLoadAware(ProductionStackSession):
    """``--routing-logic loadaware``: share of the prompt an endpoint holds, less beta times its load above the mean."""

    name = "production-stack-loadaware"
    product = "vLLM production-stack (pull request 1035)"
    Settings = LoadAwareSettings
    settings: LoadAwareSettings
    wants_kv_events = True

    def setup(self) -> None:
        """Nothing is known to be cached."""
        super().setup()
        self.index = KVIndex(self.workers)
        self.keys = request_keys(self.content.workload, self.settings.block_size)
        self.tokens = self.content.workload.num_prompt.tolist()
        self.blocks = np.zeros(self.workers, np.int32)
        self._unscored, self._order = np.full(self.workers, np.nan), list[int]()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The endpoint with the highest score."""
        self.index.count(self.keys, req, self.blocks)
        if c.order != self._order:
            self._order, self._by_url = list(c.order), np.array(sorted(c.order, key=self.urls.__getitem__), np.int64)
        s, prompt, scores = self.settings, self.tokens[req], self._unscored.copy()
        best, matched = less_load(self.blocks, s.block_size, prompt, self._by_url, c.inflight, s.beta, scores)
        if best < 0:
            return super().decide(req, now, c)
        return Decision([best], "score", matched, prompt, scores, HIGHER)

    @property
    def kv_index(self) -> KVIndex:
        """What entered and left the caches."""
        return self.index

    def remove_worker(self, worker: int, now: float) -> None:
        """What it held is gone."""
        super().remove_worker(worker, now)
        self.index.forget(worker)
