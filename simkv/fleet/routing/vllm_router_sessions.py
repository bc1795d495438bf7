"""consistent_hash and sticky_least_loaded of vllm-router 0.1.17 (src/policies/{consistent_hash,sticky_least_loaded,hash_key}.rs).

consistent_hash: 160 points a worker, the hash of "url:i", on a ring; a request goes to the owner of the first point that is not
below the hash of its key. The key is "header:NAME:VALUE" of the first of X-Session-ID, X-User-ID, X-Tenant-ID, X-Correlation-ID,
X-Request-ID and X-Trace-ID that it has (only the first is simulated), else "request:TEXT" of a text of up to 100 bytes, and of a
longer one its hash; there a simulated request has a number that stands for its whole prompt. The hash has 2**23 - 1 values, so two
workers may have a point in common; then it is the later one's in candidate order.

sticky_least_loaded: a session goes where it went first, as long as that worker is there. A new one goes to the worker with the fewest
sessions, not requests; ties to the highest hash of "session:url". Sessions nobody used for two hours are forgotten, looked for once
a minute. A request without a session goes to the worker with the fewest sessions as well, and counts for nothing. A worker that
left keeps its sessions until they come again or expire.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from simkv.fleet.routing.addresses import worker_urls
from simkv.fleet.routing.fbi_hash import fbi_hashes
from simkv.fleet.routing.policy import LOWER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.sequence import keys_of, sequences
from simkv.settings.base import setting

POINTS = 160
HEADER = "header:x-session-id:"
SWEEP_EVERY_S = 60.0
WHOLE = 1 << 30
"""A chunk that holds any prompt."""
SESSION, PROMPT = "session", "prompt"
KNOWN, NEW, NO_SESSION = "known session", "new session", "no session"


class _ByKey(RoutingPolicy):
    """What a request without a session is hashed by, and where workers are."""

    def setup(self) -> None:
        """Nothing is known beforehand; recordings say what they know."""
        self.urls = worker_urls(self.workers)
        self.keys: dict[int, str] = {}
        self.prompts = sequences(self.content.workload)

    def prompt_key(self, req: int) -> str:
        """What a request without a session is hashed by: its text, or a number that stands for it."""
        if req in self.keys:
            return self.keys[req]
        whole = keys_of(self.prompts, req, WHOLE, partial=True)
        return f"request_hash:{int(whole[0]) if len(whole) else 0:016x}"


class VllmRouterConsistentHash(_ByKey):
    """A hash ring; without a session a prompt goes where the same prompt went."""

    name = "vllm-router-consistent-hash"
    product = "vllm-router 0.1.17"

    def setup(self) -> None:
        """The ring, still without workers."""
        super().setup()
        self.order: list[int] = []
        self.points: list[int] = []
        self.owners: dict[int, int] = {}

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Owner of the first point that is not below the key's hash."""
        if c.order != self.order:
            self.build(c.order)
        session = self.content.key(req)
        key = self.keys.get(req, HEADER + session) if session else self.prompt_key(req)
        at = bisect_left(self.points, fbi_hashes([key])[0])
        return Decision([self.owners[self.points[at % len(self.points)]]], SESSION if session else PROMPT)

    def build(self, order: list[int]) -> None:
        """The ring of these workers."""
        self.order, self.owners = list(order), {}
        for worker in order:
            self.owners.update(dict.fromkeys(fbi_hashes([f"{self.urls[worker]}:{i}" for i in range(POINTS)]), worker))
        self.points = sorted(self.owners)


@dataclass(frozen=True)
class StickySettings(PolicySettings):
    """Environment variable VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S."""

    session_expiration_in_s: float = setting(7200.0, "seconds after which an unused session is forgotten", min=0.0, max=1e9)


class VllmRouterStickyLeastLoaded(_ByKey):
    """Sessions stay; new ones go where the fewest are."""

    name = "vllm-router-sticky-least-loaded"
    product = "vllm-router 0.1.17"
    Settings = StickySettings
    settings: StickySettings

    def setup(self) -> None:
        """No sessions."""
        super().setup()
        self.sessions: dict[str, tuple[int, float]] = {}
        self.counts = [0] * self.workers
        self.swept = 0.0

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The session's worker, else the one with the fewest sessions."""
        self.sweep(now)
        session = self.content.key(req)
        counts = list(self.counts)
        if session in self.sessions:
            worker = self.sessions[session][0]
            if worker in c.order:
                return Decision([worker], KNOWN)
            counts[worker] -= 1
        scores = np.full(self.workers, np.nan)
        scores[c.order] = [counts[w] for w in c.order]
        fewest = min(counts[w] for w in c.order)
        tied = [w for w in c.order if counts[w] == fewest]
        if len(tied) > 1:
            key = session or self.prompt_key(req)
            hashes = fbi_hashes([f"{key}:{self.urls[w]}" for w in tied])
            tied = [tied[hashes.index(max(hashes))]]
        return Decision(tied, NEW if session else NO_SESSION, scores=scores, prefers=LOWER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """The session is the worker's, and was used just now."""
        session = self.content.key(req)
        if not session:
            return
        if session in self.sessions:
            self.counts[self.sessions[session][0]] -= 1
        self.counts[worker] += 1
        self.sessions[session] = (worker, now)

    def sweep(self, now: float) -> None:
        """Forget sessions that nobody used for too long."""
        if now - self.swept < SWEEP_EVERY_S:
            return
        for session, (worker, used) in list(self.sessions.items()):
            if now - used >= self.settings.session_expiration_in_s:
                del self.sessions[session]
                self.counts[worker] -= 1
        self.swept = now
