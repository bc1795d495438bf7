"""cache_aware of vllm-router 0.1.17 (vllm-project/router, src/policies/cache_aware.rs and src/tree.rs; the rule as the process shows it).

The router has a worker tokenise each prompt (POST …/render) and matches tokens. Load is the number of requests whose answer is not
complete. If it is imbalanced (max - min > balance_abs_threshold and max > balance_rel_threshold * min) the least loaded worker
gets the request. Else, if more than cache_threshold of its tokens match in one tree that all workers share, the least loaded of
those that own the last matching token gets it; else the least loaded of all. Equally loaded: the first in candidate order, always.
The tokens are entered for the worker chosen, in all three cases. A prompt without tokens, or one that no worker could tokenise,
goes to the least loaded and is not entered.

The tree holds a header of six characters and eight hexadecimal digits a token. Every interval each worker's oldest leaves go
until it holds max_tree_size characters or less; only a request's end stamps its node, being matched does not.
Thresholds are 32-bit floats and the matching share is a 64-bit one: 7 of 20 tokens is more than 0.35.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simkv.fleet.routing.policy import LOWER, Candidates, Decision
from simkv.fleet.routing.prefix_eviction import evict_each
from simkv.fleet.routing.prefix_tree import find, holders
from simkv.fleet.routing.tree_policy import CacheAwareSettings, TextTreePolicy, single
from simkv.settings.base import setting

IMBALANCED, MATCH, LOW_MATCH, NO_TOKENS = "load_balance", "cache prefix", "low match", "no tokens"
DIGITS = 8
"""Characters of a token in the router's tree."""


@dataclass(frozen=True)
class VllmRouterSettings(CacheAwareSettings):
    """Flags of ``--policy cache_aware`` with their defaults."""

    eviction_interval_secs: int = setting(120, "seconds between evictions; 0 never evicts", min=0, max=1 << 30)
    max_tree_size: int = setting(1 << 25, "characters each worker may own in the tree, 8 a token", min=0, max=1 << 40)


class VllmRouterCacheAware(TextTreePolicy):
    """The default policy of vllm-router. Content comes in tokens, so an edge of the tree ends between tokens and the header is left out."""

    name = "vllm-router-cache-aware"
    product = "vllm-router 0.1.17"
    Settings = VllmRouterSettings
    header: ClassVar[int] = 0
    """Units of the content before the first token."""
    width: ClassVar[int] = 1
    """Units of the content that make a token."""

    def setup(self) -> None:
        """An empty tree."""
        super().setup()
        self.limit = self.settings.max_tree_size / DIGITS * self.width

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """One worker, always."""
        order = c.order
        scores = self.loads(c)
        every = c.inflight.tolist()
        loads = [every[w] for w in order]
        low, high = min(loads), max(loads)
        least = [order[loads.index(low)]]
        if high - low > self.settings.balance_abs_threshold and high > single(low * self.rel):
            return Decision(least, IMBALANCED, scores=scores, prefers=LOWER)
        total = (self.lengths[req] - self.header) // self.width
        if total <= 0:
            return Decision(least, NO_TOKENS, scores=scores, prefers=LOWER)
        units, node, _ = find(*self.tree, *self.prompts, req, 1)
        matched = max(units - self.header, 0) // self.width
        if not matched / total > self.threshold:
            return Decision(least, LOW_MATCH, matched, total, scores, LOWER)
        if self.width > 1:
            node = self.node_at(node, self.header + self.width * matched)
        owners = holders(self.tree, node)
        chosen = min([w for w in order if w in owners], key=every.__getitem__, default=least[0])
        return Decision([chosen], MATCH, matched, total, scores, LOWER)

    def node_at(self, node: int, units: int) -> int:
        """The node above, or this one, that has the last of so many units."""
        while self.tree.nodes[node].begin >= units:
            node = int(self.tree.nodes[node].parent)
        return node

    def commit(self, req: int, worker: int, now: float) -> None:
        """Enter the tokens."""
        self.place(req, worker, False, False)

    def tick(self, now: float) -> None:
        """Evict."""
        evict_each(self.tree, self.limit)


class VllmRouterText(VllmRouterCacheAware):
    """The same rule over the text that the router keeps, digit by digit, as recordings need it."""

    header = 6
    width = DIGITS
