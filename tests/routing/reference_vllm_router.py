"""vllm-router's cache_aware rule, slow and plain: the tree holds strings. What the compiled policy is compared with.

Written from the behaviour of the process (recordings in tests/golden), not from the compiled policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def common(a: str, b: str) -> int:
    """Units at the front that are the same in both."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


class Node:
    """A stretch of text and who sent it; ``stamps`` says when each worker's last request ended here (0: never)."""

    def __init__(self, text: str, parent: Node | None) -> None:
        self.text, self.parent = text, parent
        self.children: dict[str, Node] = {}
        self.stamps: dict[int, int] = {}


class Tree:
    """The tree of all workers' texts."""

    def __init__(self) -> None:
        self.root = Node("", None)
        self.sizes: dict[int, int] = {}
        self.clock = 0

    def add(self, worker: int) -> None:
        """A worker without text."""
        self.root.stamps.setdefault(worker, 0)
        self.sizes.setdefault(worker, 0)
        self.clock += 1

    def insert(self, text: str, worker: int) -> None:
        """The worker was sent this text. Only the node where it ends gets the time."""
        self.root.stamps.setdefault(worker, 0)
        self.sizes.setdefault(worker, 0)
        self.clock += 1
        node = self.root
        while text:
            child = node.children.get(text[0])
            if child is None:
                child = node.children[text[0]] = Node(text, node)
            shared = common(child.text, text)
            if shared < len(child.text):
                upper = Node(child.text[:shared], node)
                upper.stamps = dict(child.stamps)
                child.text, child.parent = child.text[shared:], upper
                upper.children[child.text[0]] = child
                node.children[text[0]] = child = upper
            if worker not in child.stamps:
                child.stamps[worker] = 0
                self.sizes[worker] += len(child.text)
            node, text = child, text[shared:]
        node.stamps[worker] = self.clock

    def match(self, text: str) -> int:
        """Units of the text that are in the tree."""
        node, at = self.root, 0
        while at < len(text) and (child := node.children.get(text[at])):
            shared = common(child.text, text[at:])
            node, at = child, at + shared
            if shared < len(child.text):
                break
        return at

    def node_at(self, text: str, depth: int) -> Node:
        """The node that holds unit ``depth - 1`` of a text that is in the tree that far."""
        node, at = self.root, 0
        while at < depth:
            node = node.children[text[at]]
            at += len(node.text)
        return node

    def evict(self, limit: int) -> None:
        """Each worker above the limit loses its oldest leaves until it is not."""
        for worker in self.sizes:
            while self.sizes[worker] > limit:
                self.drop(min(self.leaves(worker), key=lambda node: node.stamps[worker]), worker)

    def remove(self, worker: int) -> None:
        """A worker left: nothing of it stays."""
        while leaves := self.leaves(worker):
            self.drop(leaves[0], worker)
        self.root.stamps.pop(worker, None)
        self.sizes.pop(worker, None)

    def leaves(self, worker: int) -> list[Node]:
        """Nodes of a worker none of whose children are the worker's, without the root."""
        found, stack = [], list(self.root.children.values())
        while stack:
            node = stack.pop()
            if worker in node.stamps and not any(worker in child.stamps for child in node.children.values()):
                found.append(node)
            stack += node.children.values()
        return found

    def drop(self, node: Node, worker: int) -> None:
        """A node is no longer the worker's; a node of nobody goes."""
        self.sizes[worker] -= len(node.text)
        del node.stamps[worker]
        if not node.stamps and not node.children:
            assert node.parent is not None
            del node.parent.children[node.text[0]]


class CacheAware:
    """The rule. Workers are any small numbers; ``order`` lists the live ones.

    Args:
        header, digits: how a prompt's text is made: a header, then so many hexadecimal digits a token; with one digit a token is a
            single character, whatever its number.
    """

    def __init__(
        self,
        cache_threshold: float = 0.3,
        balance_abs_threshold: int = 64,
        balance_rel_threshold: float = 1.5,
        header: str = "tokens",
        digits: int = 8,
    ) -> None:
        self.threshold, self.absolute = float(np.float32(cache_threshold)), balance_abs_threshold
        self.relative = np.float32(balance_rel_threshold)
        self.header, self.digits = header, digits
        self.tree = Tree()

    def text(self, tokens: Sequence[int]) -> str:
        """What goes into the tree."""
        return self.header + "".join(chr(t) if self.digits == 1 else f"{t:0{self.digits}x}" for t in tokens)

    def decide(self, tokens: Sequence[int], order: Sequence[int], load: Mapping[int, int]) -> tuple[int, str, int]:
        """Worker, branch, and tokens that matched."""
        least = min(order, key=lambda w: load[w])
        high, low = max(load[w] for w in order), min(load[w] for w in order)
        if high - low > self.absolute and np.float32(high) > np.float32(low) * self.relative:
            return least, "load_balance", 0
        if not tokens:
            return least, "no tokens", 0
        text = self.text(tokens)
        matched = max(0, self.tree.match(text) - len(self.header)) // self.digits
        if matched / len(tokens) > self.threshold:
            owners = self.tree.node_at(text, len(self.header) + self.digits * matched).stamps
            return min((w for w in order if w in owners), key=lambda w: load[w]), "cache prefix", matched
        return least, "low match", matched

    def commit(self, tokens: Sequence[int], worker: int) -> None:
        """The request went there."""
        if tokens:
            self.tree.insert(self.text(tokens), worker)
