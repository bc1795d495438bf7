"""What the cache-aware policies of the SGLang family have in common: the text of a request in one tree that all workers share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.fleet.routing.policy import F8, I8, Candidates, PolicySettings, RoutingPolicy
from simkv.fleet.routing.prefix_eviction import forget_worker
from simkv.fleet.routing.prefix_tree import PrefixTree, enlarged, find, new_tree, place
from simkv.fleet.routing.scores import by_slot
from simkv.fleet.routing.sequence import sequences
from simkv.settings.base import setting


@dataclass(frozen=True)
class CacheAwareSettings(PolicySettings):
    """Flags of ``--policy cache_aware``, with the defaults of the command line (not those of the Rust structures)."""

    cache_threshold: float = setting(0.3, "share of the text that must match for affinity; equal is not enough", min=0.0, max=1.0)
    balance_abs_threshold: int = setting(64, "requests in flight that one worker may be ahead", min=0, max=1 << 30)
    balance_rel_threshold: float = setting(1.5, "times as many requests in flight that one worker may have", min=0.0, max=1e9)
    eviction_interval_secs: int = setting(60, "seconds between evictions; 0 never evicts", min=0, max=1 << 30)
    max_tree_size: int = setting(1 << 26, "characters that the tree may hold", min=0, max=1 << 40)


def single(x: float) -> float:
    """Rounded to 32 bits, in which these routers compute thresholds and rates."""
    return float(np.float32(x))


class TextTreePolicy(RoutingPolicy):
    """A tree of texts, kept. Subclasses decide."""

    Settings = CacheAwareSettings
    settings: CacheAwareSettings

    def setup(self) -> None:
        """An empty tree."""
        self.prompts = sequences(self.content.workload)
        self.lengths = self.prompts.prompts["units"].tolist()
        self.tree: PrefixTree = new_tree(self.workers)
        self.threshold, self.rel = single(self.settings.cache_threshold), single(self.settings.balance_rel_threshold)
        self.limit = self.settings.max_tree_size / self.content.chars_per_token

    @property
    def interval(self) -> float | None:
        """Seconds between evictions."""
        return float(self.settings.eviction_interval_secs) or None

    def find(self, req: int) -> tuple[int, int, int, float]:
        """``(units matched, node where the match ended, its owner, share matched)``."""
        matched, node, owner = find(*self.tree, *self.prompts, req, 1)
        n = self.lengths[req]
        return matched, node, owner, single(matched / n) if n else 0.0

    def place(self, req: int, worker: int, looked_up: bool, chosen_as_owner: bool) -> None:
        """The request's text is the worker's from now on."""
        while not place(*self.tree, *self.prompts, req, worker, looked_up, chosen_as_owner):
            self.tree = enlarged(self.tree)

    def loads(self, c: Candidates) -> F8:
        """Requests in flight, shape ``[W]``, NaN for slots that are no candidates."""
        return by_slot(c.inflight, c.order)

    def ticks(self, n: int) -> None:
        """The router's clock goes on without a request."""
        self.tree.state["clock"] += n

    def remove_worker(self, worker: int, now: float) -> None:
        """All it held is forgotten."""
        forget_worker(self.tree, worker)

    def tree_sizes(self) -> I8:
        """Units in the tree per worker, shape ``[W]``."""
        return self.tree.sizes
