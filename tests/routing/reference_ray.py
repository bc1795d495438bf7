"""Ray Serve's PrefixCacheAffinityRouter, slow and plain: the tree holds strings. What the compiled policy is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def common(a: str, b: str) -> int:
    """Characters at the front that are the same in both."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


class Node:
    """A stretch of text; ``stamps``: when each replica last had a prompt through here."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.children: dict[str, Node] = {}
        self.stamps: dict[int, float] = {}


class Tree:
    """The tree of all replicas' prompts."""

    def __init__(self) -> None:
        self.root = Node("")
        self.chars: dict[int, int] = {}

    def add(self, worker: int) -> None:
        """A replica without text."""
        self.chars.setdefault(worker, 0)

    def insert(self, text: str, worker: int, now: float) -> None:
        """The replica was sent this text; all nodes on the way get the time."""
        if worker not in self.chars:
            return
        node = self.root
        while text:
            child = node.children.setdefault(text[0], Node(text))
            shared = common(child.text, text)
            if shared < len(child.text):
                upper = Node(child.text[:shared])
                upper.stamps = dict(child.stamps)
                child.text = child.text[shared:]
                upper.children[child.text[0]] = child
                node.children[text[0]] = child = upper
            if worker not in child.stamps:
                self.chars[worker] += len(child.text)
            child.stamps[worker] = now
            node, text = child, text[shared:]

    def match(self, text: str, candidates: Sequence[int]) -> tuple[int, list[int]]:
        """Characters that match along nodes of any candidate, and the candidates that own the last node."""
        known = [w for w in candidates if w in self.chars]
        at, owners, node = 0, known, self.root
        while at < len(text) and (child := node.children.get(text[at])):
            having = [w for w in known if w in child.stamps]
            if not having:
                break
            shared = common(child.text, text[at:])
            node, at, owners = child, at + shared, having
            if shared < len(child.text):
                break
        return at, owners

    def smallest(self) -> list[int]:
        """Replicas with the fewest characters."""
        return [w for w, n in self.chars.items() if n == min(self.chars.values())]

    def evict(self, threshold: int, target: int) -> None:
        """Each replica above the threshold loses all nodes of its oldest time, and again, until it is at the target or below."""
        for worker, chars in self.chars.items():
            if chars > threshold:
                while self.chars[worker] > target:
                    self.drop(worker, min(node.stamps[worker] for node in self.nodes() if worker in node.stamps))

    def remove(self, worker: int) -> None:
        """A replica left: nothing of it stays."""
        self.drop(worker, None)
        self.chars.pop(worker, None)

    def drop(self, worker: int, time: float | None) -> None:
        """Take a replica from its nodes of one time, or from all; nodes of nobody go."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            for child in list(node.children.values()):
                if worker in child.stamps and time in (None, child.stamps[worker]):
                    del child.stamps[worker]
                    self.chars[worker] -= len(child.text)
                if child.stamps:
                    stack.append(child)
                else:
                    assert not any(worker not in c.stamps for c in child.children.values())
                    self.chars[worker] -= self.orphans(child, worker)
                    del node.children[child.text[0]]

    def orphans(self, node: Node, worker: int) -> int:
        """Characters of a replica below a node that goes."""
        return sum((len(c.text) if worker in c.stamps else 0) + self.orphans(c, worker) for c in node.children.values())

    def nodes(self) -> list[Node]:
        """All but the root."""
        found = list(self.root.children.values())
        for node in found:
            found += node.children.values()
        return found


class PrefixAware:
    """The rule. ``queue`` is the length of each live replica's queue."""

    def __init__(self, imbalanced_threshold: float = float("inf"), match_rate_threshold: float = 0.1) -> None:
        self.imbalanced, self.rate = imbalanced_threshold, match_rate_threshold
        self.tree = Tree()

    def decide(self, text: str, queue: dict[int, int]) -> tuple[set[int], str, int]:
        """Replicas that it may become, branch, and characters that matched.

        Raises:
            ZeroDivisionError: an empty text, as there.
        """
        pairs = {min(pair, key=lambda w: queue[w]) for a, b in combinations(queue, 2) for pair in ((a, b), (b, a))} or set(queue)
        if max(queue.values()) - min(queue.values()) > self.imbalanced:
            return pairs, "imbalanced", 0
        matched, owners = self.tree.match(text, list(queue))
        if matched / len(text) < self.rate:
            candidates, branch = self.tree.smallest(), "smallest"
        else:
            candidates, branch = owners, "match"
        if not candidates:
            return pairs, "power of two", matched
        low = min(queue[w] for w in candidates)
        return {w for w in candidates if queue[w] == low}, branch, matched

    def commit(self, text: str, worker: int, now: float) -> None:
        """The prompt went there."""
        self.tree.insert(text, worker, now)
