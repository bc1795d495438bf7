"""The rules of the routers that index prompts by chunks, as plainly as they can be said: one dictionary entry a chunk.

A chunk's key is the tuple of everything up to its end. Nothing here is fast, and nothing is shared with the policies but
the settings.
"""

from __future__ import annotations

from collections import OrderedDict
from math import isnan
from statistics import stdev
from typing import Any

from simkv.fleet.routing.policy import Candidates
from tests.fleet.prompts import Units

Keys = list[tuple[Any, ...]]


def chunk_keys(units: Units, chunk: int, partial: bool, root: Any = ()) -> Keys:
    """Keys of the chunks; ``partial``: of a shorter last one as well."""
    ends = range(chunk, len(units) + 1, chunk)
    keys: Keys = [(root, tuple(units[:end])) for end in ends]
    if partial and len(units) % chunk:
        keys.append((root, tuple(units)))
    return keys


class ProductionStack:
    """HashTrie and PrefixAwareRouter. ``rates``: requests per second by worker, none for a worker without statistics."""

    def __init__(self, chunk: int, min_match: int) -> None:
        self.chunk, self.min_match = chunk, min_match
        self.owners: dict[Any, set[int]] = {}

    def decide(self, units: Units, order: list[int], rates: dict[int, float]) -> tuple[set[int], int]:
        selected, matched = set(order), 0
        for key in chunk_keys(units, self.chunk, True):
            left = self.owners.get(key, set()) & selected
            if not left:
                break
            selected, matched = left, matched + 1
        if matched * 128 < self.min_match:
            for worker in order:
                if worker not in rates:
                    return {worker}, matched
            return {min(order, key=lambda w: (rates[w], order.index(w)))}, matched
        return selected, matched

    def commit(self, units: Units, worker: int) -> None:
        for key in chunk_keys(units, self.chunk, True):
            self.owners.setdefault(key, set()).add(worker)


class LlmD:
    """The producer with its indexer, three scorers, and the highest sum."""

    def __init__(self, block: int, most: int, weights: tuple[float, float, float]) -> None:
        self.block, self.most, self.weights = block, most, weights
        self.lists: dict[int, tuple[OrderedDict[Any, None], int]] = {}
        self.table: dict[Any, set[int]] = {}

    def keys(self, units: Units, root: Any) -> Keys:
        if len(units) < self.block:
            return []
        return chunk_keys(units[: self.most * self.block], self.block, True, root)

    def known(self, keys: Keys) -> dict[int, int]:
        """Blocks that each pod has, as far as any pod has one."""
        found: dict[int, int] = {}
        for key in keys:
            pods = self.table.get(key)
            if not pods:
                break
            for pod in pods:
                found[pod] = found.get(pod, 0) + 1
        return found

    def decide(self, units: Units, root: Any, c: Candidates) -> tuple[set[int], dict[int, float]]:
        keys = self.keys(units, root)
        known = self.known(keys)
        seen = {w: not isnan(c.metrics["time"][w]) for w in c.order}
        queue = {w: int(c.metrics["waiting"][w]) if seen[w] else 0 for w in c.order}
        usage = {w: float(c.metrics["kv_usage"][w]) if seen[w] else 0.0 for w in c.order}
        low, high = min(queue.values()), max(queue.values())
        sums = {}
        for w in c.order:
            total = (1.0 if high == low else (high - queue[w]) / (high - low)) * self.weights[0]
            total += min(max(1 - usage[w], 0.0), 1.0) * self.weights[1]
            sums[w] = total + (known.get(w, 0) / len(keys) if keys else 0.0) * self.weights[2]
        best = max(sums.values())
        return {w for w in c.order if sums[w] == best}, sums

    def commit(self, units: Units, root: Any, pod: int, room: int) -> None:
        keys = self.keys(units, root)
        recent, room = self.lists.setdefault(pod, (OrderedDict(), room))
        for key in keys:
            recent[key] = None
            recent.move_to_end(key)
            if len(recent) > room:
                old, _ = recent.popitem(last=False)
                self._forget(old, pod)
        for key in keys:
            self.table.setdefault(key, set()).add(pod)

    def _forget(self, key: Any, pod: int) -> None:
        if key in self.table:
            self.table[key].discard(pod)
            if not self.table[key]:
                del self.table[key]

    def clean_up(self, live: set[int]) -> None:
        for pod in set(self.lists) - live:
            for key in self.lists.pop(pod)[0]:
                self._forget(key, pod)


class Aibrix:
    """PrefixHashTable over an LRU store, and the choice of prefix_cache.go."""

    def __init__(self, block: int, room: int, minutes: float, deviations: int, gate: str) -> None:
        self.block, self.room, self.seconds, self.deviations, self.gate = block, room, 60.0 * minutes, deviations, gate
        self.store: OrderedDict[Any, tuple[set[int], float]] = OrderedDict()

    def imbalanced(self, running: list[int]) -> bool:
        gap = max(running) - min(running)
        if self.gate == "gap":
            return gap > 8
        others = sorted(running)[:-1]
        return len(running) > 1 and gap >= 8 and (len(running) == 2 or max(running) > 2 * (sum(others) / len(others) + 1))

    def known(self, units: Units, root: Any, ready: set[int]) -> dict[int, int]:
        """Blocks that each pod has from the first on, without those that have none."""
        found: dict[int, int] = {}
        for i, key in enumerate(chunk_keys(units, self.block, False, root)):
            ready = ready & self.store[key][0] if key in self.store else set()
            found |= dict.fromkeys(ready, i + 1)
            if not ready:
                break
        return found

    def decide(self, units: Units, root: Any, c: Candidates) -> tuple[set[int], str]:
        running = {w: int(c.inflight[w]) for w in c.order}
        least = {w for w in c.order if running[w] == min(running.values())}
        ready = set(least) if self.imbalanced(list(running.values())) else set(c.order)
        total = len(units) // self.block
        percent = {w: found * 100 // total for w, found in self.known(units, root, ready).items()}
        counts = list(running.values())
        most = sum(counts) / len(counts) + self.deviations * (stdev(counts) if len(counts) > 1 else 0.0)
        able = sorted((-percent[w], running[w], w) for w in percent if running[w] <= most + 1e-9)
        if able:
            return {w for p, load, w in able if (p, load) == able[0][:2]}, "prefix_match"
        return least, "prefix_match_skipped" if percent else "least_request_fallback"

    def commit(self, units: Units, root: Any, pod: int, now: float) -> None:
        for key in chunk_keys(units, self.block, False, root):
            pods = self.store[key][0] if key in self.store else set()
            pods.add(pod)
            self.store[key] = (pods, now)
            self.store.move_to_end(key)
            if len(self.store) > self.room:
                self.store.popitem(last=False)

    def expire(self, now: float) -> None:
        for key in [k for k, (_, used) in self.store.items() if now - used > self.seconds]:
            del self.store[key]
