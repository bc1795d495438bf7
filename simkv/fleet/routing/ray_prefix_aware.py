"""PrefixCacheAffinityRouter of Ray Serve LLM, ray 2.60.0
(python/ray/llm/_internal/serve/routing_policies/prefix_aware/prefix_aware_router.py and prefix_tree.py).

If the longest and the shortest queue differ by more than imbalanced_threshold (infinite by default: never), two random
replicas compete (power of two choices). Else the prompt is matched, in characters, in one tree of all replicas, as far as any
candidate owns the nodes. If the matching share is below match_rate_threshold, all replicas with the fewest characters in the
tree are candidates, else the owners of the node where the match ends; a share of just the threshold is a match. The shortest
queue among the candidates wins, equal ones in an order that differs from process to process. The prompt is entered for the replica
chosen in all cases, its answer never. A prompt without characters is an error there: division by zero.

With do_eviction, every interval a replica with more than eviction_threshold_chars loses what has its oldest time stamp, and
again, until it is at eviction_target_chars or below. A request stamps all nodes on its way, so they go together, and more may
go than needed. The tree is one actor that all router processes of a deployment share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simkv.fleet.routing.policy import I8, LOWER, Candidates, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.prefix_eviction import forget_worker
from simkv.fleet.routing.prefix_tree import ROOT, PrefixTree, enlarged, find, holders, new_tree
from simkv.fleet.routing.sequence import sequences
from simkv.fleet.routing.simple import PowerOfTwo
from simkv.fleet.routing.timed_tree import evict_oldest, place_timed
from simkv.settings.base import setting

IMBALANCED, MATCH, SMALLEST, NOBODY_KNOWN, EMPTY = "imbalanced", "match", "smallest", "no match", "ZeroDivisionError"
MANY = 1 << 40


@dataclass(frozen=True)
class RayPrefixAwareSettings(PolicySettings):
    """Arguments of ``PrefixCacheAffinityRouter.initialize_state``, with their defaults."""

    imbalanced_threshold: float | None = setting(None, "requests that queues may differ by; none (infinity): any", min=0.0, max=1e18)
    match_rate_threshold: float = setting(0.1, "share of the prompt that must match", min=0.0, max=1.0)
    do_eviction: bool = setting(False, "whether old prompts leave the tree at all")
    eviction_threshold_chars: int = setting(400_000, "characters of one replica above which its oldest go", min=0, max=MANY)
    eviction_target_chars: int | None = setting(360_000, "characters it may keep then; none: the threshold", min=0, max=MANY)
    eviction_interval_secs: int = setting(10, "seconds between evictions", min=1, max=1 << 30)


class RayPrefixAware(RoutingPolicy):
    """Prefix-aware routing of Ray Serve LLM."""

    name = "ray-prefix-aware"
    product = "ray 2.60.0"
    Settings = RayPrefixAwareSettings
    settings: RayPrefixAwareSettings
    shared: ClassVar[bool] = True

    def setup(self) -> None:
        """An empty tree without replicas."""
        self.prompts = sequences(self.content.workload)
        self.lengths = self.prompts.prompts["units"].tolist()
        self.tree: PrefixTree = new_tree(self.workers)
        self.members: list[int] = []
        self.two_choices = PowerOfTwo(self.content, self.workers)
        self.imbalanced = math.inf if self.settings.imbalanced_threshold is None else self.settings.imbalanced_threshold
        self.time, self.stamp = -1.0, 0

    @property
    def interval(self) -> float | None:
        """Seconds between evictions."""
        return float(self.settings.eviction_interval_secs) if self.settings.do_eviction else None

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The replicas with the shortest queue of those the rule picks; nobody for a prompt without characters."""
        order, every = c.order, c.inflight.tolist()
        if self.imbalanced < math.inf and max(every[w] for w in order) - min(every[w] for w in order) > self.imbalanced:
            return replace(self.two_choices.decide(req, now, c), branch=IMBALANCED)
        total = self.lengths[req]
        if total == 0:
            return Decision([], EMPTY)
        matched, owners = self.match(req, order)
        if matched / total < self.settings.match_rate_threshold:
            candidates, branch = self.smallest(), SMALLEST
        else:
            candidates, branch = owners, MATCH
        if not candidates:
            return replace(self.two_choices.decide(req, now, c), branch=NOBODY_KNOWN, total=total)
        low = min([every[w] for w in candidates])
        scores = np.full(self.workers, np.nan)
        for w in candidates:
            scores[w] = every[w]
        return Decision([w for w in candidates if every[w] == low], branch, matched, total, scores, LOWER)

    def smallest(self) -> list[int]:
        """Replicas with the fewest units in the tree."""
        sizes = self.tree.sizes.tolist()
        fewest = min([sizes[w] for w in self.members], default=0)
        return [w for w in self.members if sizes[w] == fewest]

    def match(self, req: int, order: list[int]) -> tuple[int, list[int]]:
        """Units that match where any candidate owns the nodes, and the candidates that own the last of them."""
        matched, node, _ = find(*self.tree, *self.prompts, req, 1)
        while node != ROOT:
            owners = [w for w in holders(self.tree, node) if w in order]
            if owners:
                return matched, owners
            node = int(self.tree.nodes["parent"][node])
            matched = int(self.tree.nodes["end"][node])
        return 0, [w for w in order if w in self.members]

    def commit(self, req: int, worker: int, now: float) -> None:
        """Enter the prompt; what is entered at the same moment leaves at the same moment."""
        if worker not in self.members:
            return
        self.stamp += now != self.time
        self.time = now
        while not place_timed(*self.tree, *self.prompts, req, worker, self.stamp):
            self.tree = enlarged(self.tree)

    def add_worker(self, worker: int, now: float) -> None:
        """A replica without text."""
        if worker not in self.members:
            self.members.append(worker)

    def remove_worker(self, worker: int, now: float) -> None:
        """All it held is forgotten."""
        forget_worker(self.tree, worker)
        if worker in self.members:
            self.members.remove(worker)

    def tick(self, now: float) -> None:
        """Evict."""
        s, chars = self.settings, self.content.chars_per_token
        target = s.eviction_threshold_chars if s.eviction_target_chars is None else s.eviction_target_chars
        for w in self.members:
            held = int(self.tree.sizes[w]) * chars
            if held > s.eviction_threshold_chars:
                evict_oldest(self.tree, w, (held - target) / chars)

    def tree_sizes(self) -> I8:
        """Units in the tree per replica, shape ``[W]``."""
        return self.tree.sizes
