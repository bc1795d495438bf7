"""A session always goes to the same worker: hash modulo N, and a hash ring. Both are nginx's rules, which others share in spirit.

nginx, ngx_http_upstream_hash_module.c: ``hash $key`` takes 15 bits of the CRC-32 of the key modulo the number of servers, in
their order; ``hash $key consistent`` gives each server 160 points on a ring of CRC-32 values and takes the first point
that is not below the CRC-32 of the key. nginx sends requests without a key round robin; Envoy and Istio
(RING_HASH, consistentHash) draw a random host for them, which ``without_key = "random"`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from simkv.fleet.routing.addresses import worker_urls
from simkv.fleet.routing.policy import Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.ring import Ring
from simkv.settings.base import setting

POINTS = 160
"""Points of a server of weight 1 on nginx's ring."""


@dataclass(frozen=True)
class SessionSettings(PolicySettings):
    """What becomes of requests that carry no session key."""

    without_key: str = setting("round-robin", "where requests without a session key go", choices=("round-robin", "random"))


class _Session(RoutingPolicy):
    Settings = SessionSettings
    settings: SessionSettings
    turn = 0

    def target(self, key: str, order: list[int]) -> int:
        raise NotImplementedError

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The session's worker; without a key what ``without_key`` says."""
        key = self.content.key(req)
        if key:
            return Decision([self.target(key, c.order)], "session")
        if self.settings.without_key == "random":
            return Decision(c.order, "no key")
        return Decision([c.order[self.turn % len(c.order)]], "no key")

    def commit(self, req: int, worker: int, now: float) -> None:
        """Whose turn it is among requests without a key."""
        self.turn += not self.content.key(req)


class SessionHashModN(_Session):
    """Hash modulo N: ``(crc32(key) >> 16 & 0x7fff) % N`` in candidate order. One worker more or less moves nearly every session."""

    name = "session-hash"
    product = "nginx (hash $key)"

    def target(self, key: str, order: list[int]) -> int:
        """The worker at the hash's place in the order."""
        return order[(crc32(_bytes(key)) >> 16 & 0x7FFF) % len(order)]


class SessionRing(_Session):
    """A hash ring of 160 points a worker. One worker more or less moves the sessions of its own arcs only."""

    name = "session-ring"
    product = "nginx (hash $key consistent)"

    def setup(self) -> None:
        """The ring, still without workers."""
        self.urls = worker_urls(self.workers)
        self.ring = Ring(lambda worker: nginx_points(self.urls[worker]))

    def target(self, key: str, order: list[int]) -> int:
        """Owner of the first point not below the key's CRC-32."""
        self.ring.set_live(order)
        return self.ring.at_or_after(crc32(_bytes(key)))


def nginx_points(url: str) -> list[int]:
    """A server's points: CRC-32 of host, a zero byte, port and the point before (4 bytes, little-endian)."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    base = crc32(_bytes(f"{host}\0{port}"))
    points, point = [], 0
    for _ in range(POINTS):
        point = crc32(point.to_bytes(4, "little"), base)
        points.append(point)
    return points


def _bytes(text: Any) -> bytes:
    return str(text).encode("utf-8", "surrogatepass")
