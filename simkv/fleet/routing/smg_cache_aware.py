"""cache_aware of smg 1.13.0 (lightseekorg/smg, model_gateway/src/policies/cache_aware.rs), without load reports of the workers.

The request is looked up in one tree for all workers: as text, or as token ids in whole pages if it comes as ``input_ids``. If
more than cache_threshold of it matches, the holders of the node where the match ends are its candidates, the least loaded of
them gets it. A holder spills if its requests in flight are more than balance_rel_threshold times the mean and more than
the mean + min(balance_abs_threshold, max(2 sqrt(mean), 4)); if every holder does, the least loaded worker that does not
gets it. Without a match the least loaded worker. Ties are lots. The prompt is entered for the worker chosen.

max_tree_size bounds each tree as a whole, a node counted once for each holder: the oldest leaves of all workers go first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from simkv.fleet.routing.page_tree import place_pages
from simkv.fleet.routing.policy import LOWER, Candidates, Decision
from simkv.fleet.routing.prefix_eviction import evict_total, forget_worker
from simkv.fleet.routing.prefix_tree import enlarged, find, holders, new_tree
from simkv.fleet.routing.tree_policy import CacheAwareSettings, TextTreePolicy, single
from simkv.settings.base import setting

MATCH, SPILL, NO_MATCH = "tree_match", "spill", "expected_wait_fallback"


@dataclass(frozen=True)
class SmgCacheAwareSettings(CacheAwareSettings):
    """Flags of ``--policy cache_aware``, and how requests come."""

    block_size: int = setting(16, "tokens per page of the tree of token ids", min=1, max=1 << 20)
    prompts_as: str = setting("text", "how requests bring their prompt: text, or token ids", choices=("text", "input_ids"))


class SmgCacheAware(TextTreePolicy):
    """The least loaded holder of the longest match if enough matches and it does not spill, else the least loaded worker."""

    name = "smg-cache-aware"
    product = "smg 1.13.0"
    Settings = SmgCacheAwareSettings
    settings: SmgCacheAwareSettings

    def setup(self) -> None:
        """Two empty trees."""
        super().setup()
        self.pages = new_tree(self.workers)
        n = len(self.content.workload)
        self.as_ids = np.full(n, self.settings.prompts_as == "input_ids").tolist()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The least loaded of those that hold the prefix and do not spill, or of all."""
        order, every = c.order, c.inflight.tolist()
        if self.as_ids[req]:
            matched, node, _ = find(*self.pages, *self.prompts, req, self.settings.block_size)
        else:
            matched, node, _ = find(*self.tree, *self.prompts, req, 1)
        total = self.lengths[req]
        among, branch = order, NO_MATCH
        if total and single(matched / total) > self.threshold:
            held = holders(self.pages if self.as_ids[req] else self.tree, node)
            mean = sum([every[w] for w in order]) / len(order)
            bound = max(mean * self.rel, mean + min(self.settings.balance_abs_threshold, max(2 * sqrt(mean), 4)))
            among, branch = [w for w in order if w in held and every[w] <= bound], MATCH
            if not among:
                among, branch = [w for w in order if every[w] <= bound] or order, SPILL
        low = min([every[w] for w in among])
        return Decision([w for w in among if every[w] == low], branch, matched, total, self.loads(c), LOWER)

    def commit(self, req: int, worker: int, now: float) -> None:
        """Enter the prompt."""
        if not self.as_ids[req]:
            self.place(req, worker, True, False)
            return
        while not place_pages(*self.pages, *self.prompts, req, worker, self.settings.block_size):
            self.pages = enlarged(self.pages)

    def remove_worker(self, worker: int, now: float) -> None:
        """All it held is forgotten."""
        super().remove_worker(worker, now)
        forget_worker(self.pages, worker)

    def tick(self, now: float) -> None:
        """Evict."""
        evict_total(self.tree, self.limit)
        evict_total(self.pages, self.settings.max_tree_size)
