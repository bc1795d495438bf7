"""The rules of sglang-router's and smg's cache_aware once more, slowly: a tree of objects that hold their units."""

from __future__ import annotations

from math import sqrt

import numpy as np

Units = tuple[int, ...]


class Node:
    """One edge. ``number`` only decides which of equally old leaves goes first, as in the compiled tree."""

    def __init__(self, parent: Node | None, units: Units, number: int) -> None:
        self.parent, self.units, self.number = parent, units, number
        self.children: dict[int, Node] = {}
        self.stamps: dict[int, int] = {}
        self.owner: int | None = None


class Tree:
    """Texts and who holds them."""

    def __init__(self) -> None:
        self.clock, self.numbers, self.free = 0, 1, list[int]()
        self.root = Node(None, (), 0)
        self.nodes: list[Node] = []
        self.sizes: dict[int, int] = {}

    def node(self, parent: Node, units: Units) -> Node:
        if self.free:
            number = self.free.pop()
        else:
            number, self.numbers = self.numbers, self.numbers + 1
        new = Node(parent, units, number)
        parent.children[units[0]] = new
        self.nodes.append(new)
        return new

    def walk(self, text: Units) -> tuple[int, Node, int]:
        """Units matched, the node where that ends, and how far into it."""
        n, at = self.root, 0
        while at < len(text) and text[at] in n.children:
            n = n.children[text[at]]
            same = 0
            while same < len(n.units) and at + same < len(text) and n.units[same] == text[at + same]:
                same += 1
            at += same
            if same < len(n.units):
                return at, n, same
        return at, n, len(n.units)

    def hold(self, n: Node, worker: int) -> None:
        if n is not self.root and worker not in n.stamps:
            n.stamps[worker] = 0
            self.sizes[worker] = self.sizes.get(worker, 0) + len(n.units)

    def place(self, text: Units, worker: int, looked_up: bool, as_owner: bool) -> None:
        matched, n, within = self.walk(text)
        if looked_up:
            if as_owner and n.owner not in n.stamps:
                n.owner = worker
            if self.clock % 8 == 0 and n.owner in n.stamps:
                assert n.owner is not None
                n.stamps[n.owner] = self.clock
            self.clock += 1
        if within < len(n.units):
            assert n.parent is not None
            upper = self.node(n.parent, n.units[:within])
            upper.stamps, upper.owner = dict(n.stamps), n.owner
            n.parent, n.units = upper, n.units[within:]
            upper.children[n.units[0]] = n
            n = upper
        above: Node | None = n
        while above is not None:
            self.hold(above, worker)
            above = above.parent
        if matched < len(text):
            n = self.node(n, text[matched:])
            n.owner = worker
            self.hold(n, worker)
        if n is not self.root:
            n.stamps[worker] = self.clock
        self.clock += 1

    def drop(self, n: Node, worker: int) -> None:
        del n.stamps[worker]
        self.sizes[worker] -= len(n.units)
        if not n.stamps:
            assert n.parent is not None
            del n.parent.children[n.units[0]]
            self.nodes.remove(n)
            self.free.append(n.number)

    def evict(self, workers: list[int], limit: int) -> None:
        """The oldest leaves of these workers go while they hold more than ``limit`` together."""
        while sum(self.sizes.get(w, 0) for w in workers) > limit:
            leaves = [
                (n.stamps[w], n.number, w, n)
                for n in self.nodes
                for w in workers
                if w in n.stamps and not any(w in child.stamps for child in n.children.values())
            ]
            _, _, worker, oldest = min(leaves, key=lambda leaf: leaf[:3])
            self.drop(oldest, worker)

    def remove(self, worker: int) -> None:
        for n in sorted(self.nodes, key=lambda n: n.number):
            if worker in n.stamps:
                self.drop(n, worker)


def single(x: float) -> np.float32:
    return np.float32(x)


def sglang_decide(tree: Tree, text: Units, order: list[int], load: dict[int, int], rule: dict[str, float]) -> tuple[list[int], str, int]:
    """Allowed workers, branch, units matched."""
    low, high = min(load.values()), max(load.values())
    least = next(w for w in order if load[w] == low)
    if high - low > rule["balance_abs_threshold"] and single(high) > single(low) * single(rule["balance_rel_threshold"]):
        return [least], "imbalanced", 0
    matched, n, _ = tree.walk(text)
    if text and single(matched) / single(len(text)) > single(rule["cache_threshold"]):
        owners = [n.owner] if n.owner in n.stamps else sorted(n.stamps)
        return [w for w in owners if w is not None], "match", matched
    return [least], "low match", matched


def smg_decide(tree: Tree, text: Units, order: list[int], load: dict[int, int], rule: dict[str, float]) -> tuple[list[int], str, int]:
    """Allowed workers, branch, units matched."""
    matched, n, _ = tree.walk(text)
    mean = sum(load.values()) / len(order)
    margin = min(rule["balance_abs_threshold"], max(2 * sqrt(mean), 4))

    def spills(w: int) -> bool:
        return load[w] > mean + margin and load[w] > mean * float(single(rule["balance_rel_threshold"]))

    among, branch = order, "expected_wait_fallback"
    if text and single(matched) / single(len(text)) > single(rule["cache_threshold"]):
        holders = [w for w in order if w in n.stamps]
        among, branch = [w for w in holders if not spills(w)], "tree_match"
        if not among:
            among, branch = [w for w in order if not spills(w)], "spill"
    low = min(load[w] for w in among)
    return [w for w in among if load[w] == low], branch, matched
