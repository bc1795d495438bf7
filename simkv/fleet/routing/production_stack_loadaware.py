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
from simkv.fleet.routing.policy import HIGHER, Candidates, Decision, KVEvents
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
        self.by_url = sorted(range(self.workers), key=self.urls.__getitem__)

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The endpoint with the highest score."""
        self.index.count(self.keys, req, self.blocks)
        held = self.blocks.tolist()
        if not any(held[w] for w in c.order):
            return super().decide(req, now, c)
        loads, prompt = c.inflight.tolist(), self.tokens[req]
        mean = sum(loads[w] for w in c.order) / len(c.order)
        scores = np.full(self.workers, np.nan)
        best, highest, matched = c.order[0], -np.inf, 0
        for w in self.by_url if len(c.order) == self.workers else [w for w in self.by_url if w in c.order]:
            tokens = min(held[w] * self.settings.block_size, prompt)
            scores[w] = score = tokens / max(prompt, 1) - self.settings.beta * (loads[w] - mean) / max(1.0, mean)
            if score > highest:
                best, highest, matched = w, score, tokens
        return Decision([best], "score", matched, prompt, scores, HIGHER)

    def kv_events(self, worker: int, batch: KVEvents) -> None:
        """What entered and left a cache."""
        self.index.apply(worker, batch)

    def remove_worker(self, worker: int, now: float) -> None:
        """What it held is gone."""
        super().remove_worker(worker, now)
        self.index.forget(worker)
