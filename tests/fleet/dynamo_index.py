"""Dynamo's block index in plain Python: a compressed tree with per-worker cutoffs, as its own description has it."""

from __future__ import annotations

from collections.abc import Sequence

Blocks = Sequence[int]
"""Keys of consecutive blocks; a key stands for its block and all before it."""


class Node:
    def __init__(self, edge: list[int], parent: Node | None) -> None:
        self.edge, self.parent = edge, parent
        self.cutoff: dict[int, int] = {}  # worker -> leading blocks of the edge it holds
        self.children: dict[int, Node] = {}
        self.internal = False

    def full(self) -> set[int]:
        return {w for w, n in self.cutoff.items() if n == len(self.edge)}

    def split(self, at: int) -> None:
        rest = Node(self.edge[at:], self)
        rest.cutoff = {w: n - at for w, n in self.cutoff.items() if n > at}
        rest.children = self.children
        for child in rest.children.values():
            child.parent = rest
        rest.internal = bool(rest.children)
        self.edge = self.edge[:at]
        self.cutoff = {w: min(n, at) for w, n in self.cutoff.items()}
        self.children, self.internal = {rest.edge[0]: rest}, True

    def append(self, worker: int, blocks: Blocks) -> None:
        self.edge = [*self.edge, *blocks]
        self.cutoff[worker] = len(self.edge)


class DynamoIndex:
    """The index of one router."""

    def __init__(self) -> None:
        self.root = Node([], None)

    def nodes(self) -> list[Node]:
        out, todo = [], list(self.root.children.values())
        while todo:
            node = todo.pop()
            out.append(node)
            todo.extend(node.children.values())
        return out

    def holding(self, worker: int, block: int) -> tuple[Node, int] | None:
        """Node and place of a block the worker holds."""
        for node in self.nodes():
            if block in node.edge and node.edge.index(block) < node.cutoff.get(worker, 0):
                return node, node.edge.index(block)
        return None

    def store(self, worker: int, parent: int | None, blocks: Blocks) -> None:
        node = self.root
        if parent is not None:
            found = self.holding(worker, parent)
            if found is None:
                return
            node, place = found
            rest = node.edge[place + 1 :]
            same = common(rest, blocks)
            if rest and same == len(blocks):
                node.cutoff[worker] = max(node.cutoff[worker], place + 1 + same)
                return
            if rest and same == len(rest) and not node.children:
                node.append(worker, blocks[same:])
                return
            if rest:
                node.split(place + 1)
        while blocks:
            child = node.children.get(blocks[0])
            if child is None:
                if node is not self.root and not node.children and node.cutoff.get(worker) == len(node.edge):
                    node.append(worker, blocks)
                else:
                    child = node.children[blocks[0]] = Node(list(blocks), node)
                    child.cutoff[worker] = len(blocks)
                    node.internal = True
                return
            if not child.cutoff and not child.children:
                child.edge = list(blocks)
            same = common(child.edge, blocks)
            child.cutoff[worker] = max(child.cutoff.get(worker, 0), same)
            blocks = blocks[same:]
            if blocks and same < len(child.edge):
                child.split(same)
            node = child

    def remove(self, worker: int, block: int) -> None:
        found = self.holding(worker, block)
        if found is None:
            return
        node, place = found
        node.cutoff[worker] = place
        if place == 0:
            del node.cutoff[worker]
        if not node.full():
            node.children = {}

    def clear(self, worker: int) -> None:
        for node in self.nodes():
            if node.cutoff.pop(worker, 0) and not node.full():
                node.children = {}

    def match(self, blocks: Blocks) -> dict[int, int]:
        """Leading blocks by worker; workers with none are left out."""
        out: dict[int, int] = {}
        racing: set[int] | None = None
        node, depth = self.root.children.get(blocks[0]) if blocks else None, 0
        while node is not None:
            same, full = common(node.edge, blocks[depth:]), node.full()
            if racing is None:
                racing = full
                out |= {w: min(n, same) for w, n in node.cutoff.items() if w not in full}
            else:
                out |= {w: depth + min(node.cutoff.get(w, 0), same) for w in racing - full}
                racing = racing & full
            depth += same
            if same < len(node.edge) or not racing or depth == len(blocks):
                break
            node = node.children.get(blocks[depth])
        return out | dict.fromkeys(racing or (), depth)


def common(a: Blocks, b: Blocks) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n
