"""consistent_hashing of sglang-router 0.3.2 and of smg 1.13.0 (policies/consistent_hashing.rs): a key names its worker.

The key is the header X-SMG-Routing-Key, else Authorization, X-Forwarded-For or Cookie; the header X-SMG-Target-Worker, a number in
candidate order, goes before all. A request without any of them goes to a random worker.

Over HTTP, sglang-router 0.3.2 has no ring: it takes the first 8 bytes of BLAKE3(key), a little-endian number, modulo the number of
workers, so one worker more or less moves most keys. smg has a ring of 150 points a worker, BLAKE3("url#i").
"""

from __future__ import annotations

from blake3 import blake3

from simkv.fleet.routing.addresses import worker_urls
from simkv.fleet.routing.policy import Candidates, Decision, RoutingPolicy
from simkv.fleet.routing.ring import Ring

POINTS = 150
TARGET, KEY, NO_KEY = "target_worker_hit", "routing_key_hit", "random_fallback"


def blake(text: str) -> int:
    """The first 8 bytes of BLAKE3, a little-endian number."""
    return int.from_bytes(blake3(text.encode("utf-8", "surrogatepass")).digest(8), "little")


def smg_points(url: str) -> list[int]:
    """A worker's points on smg's ring."""
    return [blake(f"{url}#{i}") for i in range(POINTS)]


class SglangConsistentHashing(RoutingPolicy):
    """A session's worker by hash modulo the number of workers: one more or less moves most sessions."""

    name = "sglang-consistent-hashing"
    product = "sglang-router 0.3.2"

    def setup(self) -> None:
        """No request names its worker."""
        self.targets: dict[int, int] = {}

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The worker named or hashed to; none if the one named is not there."""
        if req in self.targets:
            at = self.targets[req]
            return Decision(c.order[at : at + 1] if at >= 0 else [], TARGET)
        key = self.content.key(req)
        if not key:
            return Decision(c.order, NO_KEY)
        return Decision([self.worker_of(key, c.order)], KEY)

    def worker_of(self, key: str, order: list[int]) -> int:
        """Where a key belongs."""
        return order[blake(key) % len(order)]


class SmgConsistentHashing(SglangConsistentHashing):
    """A session's worker on a hash ring of 150 points a worker: one more or less moves few sessions."""

    name = "smg-consistent-hashing"
    product = "smg 1.13.0"

    def setup(self) -> None:
        """The ring, still without workers."""
        super().setup()
        self.urls = worker_urls(self.workers)
        self.ring = Ring(lambda worker: smg_points(self.urls[worker]))

    def worker_of(self, key: str, order: list[int]) -> int:
        """Owner of the first point that is not below the key's hash."""
        self.ring.set_live(order)
        return self.ring.at_or_after(blake(key))
