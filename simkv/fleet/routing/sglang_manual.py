"""manual of sglang-router 0.3.2 and of smg 1.13.0 (policies/manual.rs): a session stays where it began.

The key is the header X-SMG-Routing-Key. A key remembers up to two workers, and the first of them that is there gets the
request, so a session returns when its worker does. A new key, or one with no worker left, goes by assignment_mode: random,
min_load (fewest requests in flight), min_group (fewest distinct keys in flight); ties are lots. A request without a key goes the
same way and leaves nothing behind. A key idle for max_idle_secs is forgotten.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from simkv.fleet.routing.policy import LOWER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.scores import by_slot
from simkv.settings.base import setting

REMEMBERED = 2
HIT, MISS, NEW, NO_KEY = "occupied_hit", "occupied_miss", "vacant", "no_routing_id"


@dataclass(frozen=True)
class ManualSettings(PolicySettings):
    """Flags of ``--policy manual``."""

    assignment_mode: str = setting("random", "where a new key goes", choices=("random", "min_load", "min_group"))
    max_idle_secs: int = setting(14_400, "seconds after which an idle key is forgotten; 0 never", min=0, max=1 << 30)
    eviction_interval_secs: int = setting(60, "seconds between looks for idle keys; 0 never", min=0, max=1 << 30)


class SglangManual(RoutingPolicy):
    """A session stays where it began; new ones at random, by load or by number of sessions."""

    name = "sglang-manual"
    product = "sglang-router 0.3.2"
    Settings = ManualSettings
    settings: ManualSettings

    def setup(self) -> None:
        """No keys."""
        self.remembered: dict[str, list[int]] = {}
        self.used: dict[str, float] = {}
        self.keys: list[Counter[str]] = [Counter() for _ in range(self.workers)]

    @property
    def interval(self) -> float | None:
        """Seconds between looks for idle keys."""
        return float(self.settings.eviction_interval_secs) or None if self.settings.max_idle_secs else None

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The key's worker; else those that its mode allows."""
        key = self.content.key(req)
        known = self.remembered.get(key, ()) if key else ()
        for worker in known:
            if worker in c.order:
                return Decision([worker], HIT)
        branch = MISS if known else NEW if key else NO_KEY
        mode = self.settings.assignment_mode
        if mode == "random":
            return Decision(c.order, branch)
        loads = c.inflight if mode == "min_load" else np.array([len(keys) for keys in self.keys])
        every = loads.tolist()
        low = min([every[w] for w in c.order])
        return Decision([w for w in c.order if every[w] == low], branch, scores=by_slot(loads, c.order), prefers=LOWER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """Remember where the key is."""
        key = self.content.key(req)
        if not key:
            return
        self.used[key] = now
        self.keys[worker][key] += 1
        known = self.remembered.setdefault(key, [])
        if worker not in known:
            del known[: max(0, len(known) + 1 - REMEMBERED)]
            known.append(worker)

    def finished(self, req: int, worker: int, now: float) -> None:
        """The key has a request less in flight."""
        key = self.content.key(req)
        keys = self.keys[worker]
        if key and key in keys:
            keys[key] -= 1
            if not keys[key]:
                del keys[key]

    def remove_worker(self, worker: int, now: float) -> None:
        """If it returns, it begins without requests in flight."""
        self.keys[worker] = Counter()

    def tick(self, now: float) -> None:
        """Forget idle keys."""
        for key in [key for key, at in self.used.items() if now - at >= self.settings.max_idle_secs]:
            del self.used[key], self.remembered[key]


class SmgManual(SglangManual):
    """A session stays where it began; new ones at random, by load or by number of sessions."""

    name = "smg-manual"
    product = "smg 1.13.0"
