"""vLLM production-stack's rules that look at no content: roundrobin and session.

Product: git a6c01db0 (2026-08-05), src/vllm_router/routers/routing_logic.py; the ring is uhashring 2.3 as it comes.
"""

from __future__ import annotations

from hashlib import md5

from simkv.fleet.routing.addresses import worker_urls
from simkv.fleet.routing.policy import Candidates, Decision, RoutingPolicy
from simkv.fleet.routing.production_stack_rates import RateSettings, RequestRates, lowest_qps
from simkv.fleet.routing.ring import Ring

POINTS = 160
"""uhashring: points of a node of weight 1."""


class ProductionStackRoundRobin(RoutingPolicy):
    """``--routing-logic roundrobin``: a counter for every set of endpoints there has been, over the endpoints sorted by URL."""

    name = "production-stack-roundrobin"
    product = "vLLM production-stack (git a6c01db0)"

    def setup(self) -> None:
        """No counters yet."""
        self.urls = worker_urls(self.workers)
        self.counts: dict[tuple[int, ...], int] = {}
        self._order: list[int] = []
        self._sorted: tuple[int, ...] = ()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The next of this set."""
        if c.order != self._order:
            self._order = list(c.order)
            self._sorted = tuple(sorted(c.order, key=self.urls.__getitem__))
        return Decision([self._sorted[self.counts.get(self._sorted, 0) % len(self._sorted)]], "next")

    def commit(self, req: int, worker: int, now: float) -> None:
        """Count, for the set that was decided on last."""
        self.counts[self._sorted] = self.counts.get(self._sorted, 0) + 1


class ProductionStackSession(RoutingPolicy):
    """``--routing-logic session``: a ring of 160 points a worker at md5("URL-i"); the owner of the first point above md5(key).

    A request without a key goes to the first endpoint that has no statistics, else to the one with the lowest rate
    of requests. The real router takes the key from the header before the body (``--session-key``).
    """

    name = "production-stack-session"
    product = "vLLM production-stack (git a6c01db0)"
    Settings = RateSettings
    settings: RateSettings

    def setup(self) -> None:
        """The ring, still without workers; no requests sent."""
        self.urls = worker_urls(self.workers)
        self.rates = RequestRates(self.workers, self.settings.request_stats_window)
        self.ring = Ring(lambda worker: [hashed(f"{self.urls[worker]}-{i}") for i in range(POINTS)])

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The session's worker, or the one with the lowest rate."""
        key = self.content.key(req)
        if key is None:
            return lowest_qps(c.order, self.rates, now, self.workers)
        self.ring.set_live(c.order)
        return Decision([self.ring.after(hashed(key))], "session")

    def commit(self, req: int, worker: int, now: float) -> None:
        """Count the request."""
        self.rates.on_new_request(worker, now)


def hashed(text: str) -> int:
    """MD5 as one number of 128 bits."""
    return int.from_bytes(md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest(), "big")
