"""cache_aware of sglang-router 0.3.2 (sgl-model-gateway/src/policies/cache_aware.rs and tree.rs).

Load is the number of requests whose answer is not complete. If it is imbalanced (max - min > balance_abs_threshold and
max > balance_rel_threshold * min) the least loaded worker gets the request. Else the request's text is looked up, in
characters, in one tree that all workers share: if more than cache_threshold of it matches, the owner of the node where the match
ends gets it, else the least loaded worker. Equally loaded: the first in candidate order, always. The text is entered for the
worker chosen, in all three cases.

The owner of a node is the worker that made it; a split leaves it to both halves, and others who pass through later do not
change it. Only if the owner's entry was evicted is it any of the rest (the order of a hash map). Every interval each worker's
oldest leaves go until it holds max_tree_size characters or less.
"""

from __future__ import annotations

from simkv.fleet.routing.policy import LOWER, NEITHER, Candidates, Decision
from simkv.fleet.routing.prefix_eviction import evict_each
from simkv.fleet.routing.prefix_tree import NOBODY, holders
from simkv.fleet.routing.tree_policy import TextTreePolicy, single

IMBALANCED, MATCH, LOW_MATCH = "imbalanced", "match", "low match"


class SglangCacheAware(TextTreePolicy):
    """The owner of the longest matching text if enough matches and loads are balanced, else the least loaded worker."""

    name = "sglang-cache-aware"
    product = "sglang-router 0.3.2"

    def setup(self) -> None:
        """An empty tree and no workers."""
        super().setup()
        self.branch = LOW_MATCH
        self.joined: set[int] = set()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """One worker, but for a prefix whose owner's entry was evicted: then any that still holds it."""
        order = c.order
        scores = self.loads(c)
        every = c.inflight.tolist()
        loads = [every[w] for w in order]
        low, high = min(loads), max(loads)
        if high - low > self.settings.balance_abs_threshold and high > single(low * self.rel):
            self.branch = IMBALANCED
            return Decision([order[loads.index(low)]], IMBALANCED, scores=scores, prefers=LOWER)
        matched, node, owner, share = self.find(req)
        total = self.lengths[req]
        if share > self.threshold:
            self.branch = MATCH
            owners = [owner] if owner != NOBODY else holders(self.tree, node)
            return Decision([w for w in owners if w in order] or [order[0]], MATCH, matched, total, scores, NEITHER)
        self.branch = LOW_MATCH
        return Decision([order[loads.index(low)]], LOW_MATCH, matched, total, scores, LOWER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """Enter the text."""
        self.place(req, worker, self.branch != IMBALANCED, self.branch == MATCH)

    def add_worker(self, worker: int, now: float) -> None:
        """Enters the empty text for every worker there is: so many ticks."""
        self.joined.add(worker)
        self.ticks(len(self.joined))

    def remove_worker(self, worker: int, now: float) -> None:
        """All it held is forgotten."""
        super().remove_worker(worker, now)
        self.joined.discard(worker)

    def tick(self, now: float) -> None:
        """Evict."""
        evict_each(self.tree, self.limit)
