"""check_integrity(): everything that must hold of a replica between two turns. For tests and debugging."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from simkv.engine.sglang.evict import order_of
from simkv.engine.sglang.layout import NONE, ROOT, RUNNING, WAITING
from simkv.engine.sglang.links import find_place

LOW = 0xFFFF_FFFF
place_of: Any = getattr(find_place, "py_func", find_place)
rank_of: Any = getattr(order_of, "py_func", order_of)
"""Compiled, they can only be called by compiled code."""


def check_integrity(e: Any, cfg: Any, c: Any, locked: list[int] | None = None) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself.

    Tree: links of parents, children and siblings agree, every node is found by its key, edges lie end to end, locks are the
    live requests on the path. Pool: free list, tree and requests' own pages are all pages, each once; evictable and protected
    pages are the tree. Heap: the unlocked leaves, in heap order. Queues agree with the requests' states.

    Args:
        locked: the nodes locked from outside (cache operations); default: those of the running requests.
    """
    order = _links(e)
    _table(e, order)
    own = _rows(e, cfg, c)
    _pool(e, cfg, c, order, own)
    if locked is None:
        locked = [int(r.lock) for r in e.reqs if r.lock >= 0]
    _locks(e, c, order, locked)
    _heap(e, cfg, c, order)
    _queues(e, cfg, c)
    assert 0 <= c.hits <= c.queries, "hits exceed queries"


def _children(e: Any, n: int) -> list[int]:
    out: list[int] = []
    x = int(e.nodes[n].first)
    while x:
        out.append(x)
        assert len(out) <= len(e.nodes), f"node {n}: the list of children does not end"
        x = int(e.nodes[x].next)
    return out


def _links(e: Any) -> list[int]:
    """All nodes but the root, parents first."""
    order, stack = list[int](), [ROOT]
    while stack:
        n = stack.pop()
        children = _children(e, n)
        assert len(children) == int(e.nodes[n].children), f"node {n}: the number of children is off"
        assert (int(e.nodes[n].last) or None) == (children[-1] if children else None), f"node {n}: the last child is another"
        for before, x in zip([0, *children], children, strict=False):
            node = e.nodes[x]
            assert (int(node.parent), int(node.prev)) == (n, before), f"node {x}: parent or elder sibling is another"
            assert node.pages > 0, f"node {x}: an empty edge"
            assert int(node.depth) == (int(e.nodes[n].depth + e.nodes[n].pages) if n != ROOT else 0), f"node {x}: a gap to its parent"
        order += children
        stack += children
    assert len(set(e.nodes["stamp"][order].tolist())) == len(order), "two nodes have the same time stamp"
    return order


def _table(e: Any, order: list[int]) -> None:
    assert sorted((e.table[e.table != 0] & np.uint64(LOW)).tolist()) == sorted(order), "the table holds other nodes than the tree"
    for n in order:
        place = int(place_of(e.nodes, e.table, e.nodes[n].key))
        assert int(e.table[place]) & LOW == n, f"node {n} is not found by its key"


def _rows(e: Any, cfg: Any, c: Any) -> list[int]:
    """Pages that requests hold outside the tree; checks that their rows follow the tree where it owns them."""
    own: list[int] = []
    held = live = 0
    for r in e.reqs:
        if r.slot < 0:
            assert r.lock == NONE, "a request without a row holds a lock"
            continue
        assert r.status == RUNNING, "a request that does not run holds a row"
        live += 1
        pages = -(-int(r.committed) // int(cfg.page))
        row = e.rows[r.slot][:pages].tolist()
        x, path = int(r.lock), list[int]()
        while x > 0:
            node = e.nodes[x]
            path = [*e.arena[c.arena_half][node.slots : node.slots + node.pages].tolist(), *path]
            x = int(node.parent)
        assert len(path) == int(r.protected), "the tree holds another part of a row than the request believes"
        assert path == row[: len(path)], "a row differs from the tree's pages"
        own += row[int(r.protected) :]
        held += pages
    assert held == int(c.held), "the count of pages in rows is off"
    assert live == int(c.running), "the count of running requests is off"
    return own


def _pool(e: Any, cfg: Any, c: Any, order: list[int], own: list[int]) -> None:
    tree = [p for n in order for p in e.arena[c.arena_half][e.nodes[n].slots : e.nodes[n].slots + e.nodes[n].pages].tolist()]
    free = [int(e.free[(int(c.free_head) + i) & (len(e.free) - 1)]) for i in range(int(c.free_len))]
    counts = Counter(tree + free + own)
    assert not c.grouped, "a free group is open"
    assert set(counts.values()) <= {1}, "a page is in two places"
    assert set(counts) == set(range(1, int(cfg.num_pages) + 1)), "a page is lost"
    assert len(tree) == int(c.cached) == int(c.evictable + c.protected), "evictable and protected pages are not the tree"
    assert int(c.free) == int(c.free_len + c.evictable) or c.steps == 0, "the count of reachable pages is off"


def _locks(e: Any, c: Any, order: list[int], locked: list[int]) -> None:
    expected: Counter[int] = Counter()
    for n in locked:
        x = n
        while x > 0:
            expected[x] += 1
            x = int(e.nodes[x].parent)
    for n in order:
        assert int(e.nodes[n].lock) == expected[n], f"node {n}: {int(e.nodes[n].lock)} locks, {expected[n]} holders"
    evictable = sum(int(e.nodes[n].pages) for n in order if not expected[n])
    assert evictable == int(c.evictable), "the count of evictable pages is off"


def _heap(e: Any, cfg: Any, c: Any, order: list[int]) -> None:
    heap = e.heap[: int(c.heap_len)].tolist()
    leaves = [n for n in order if e.nodes[n].lock == 0 and e.nodes[n].children == 0]
    assert sorted(heap) == sorted(leaves), "the heap is not the unlocked leaves"
    ranks = [(int(rank_of(cfg, e.nodes[n])), int(e.nodes[n].stamp)) for n in heap]
    for i, n in enumerate(heap):
        assert int(e.nodes[n].heap) == i, f"node {n} is elsewhere in the heap"
        assert int(e.nodes[n].order) == ranks[i][0], f"node {n} is in the heap under an old key"
        assert i == 0 or ranks[(i - 1) // 2] < ranks[i], f"node {n} stands above a better victim"


def _queues(e: Any, cfg: Any, c: Any) -> None:
    waiting = e.queue["waiting"][int(c.wait_head) : int(c.wait_head + c.wait_len)].tolist()
    assert sorted(waiting) == np.flatnonzero(e.reqs["status"] == WAITING).tolist(), "the queue is not the waiting requests"
    pages = sum((int(e.reqs[r].num_prompt) + int(e.reqs[r].generated)) // int(cfg.page) + 1 for r in waiting)
    assert pages == int(c.wait_pages), "the count of waiting pages is off"
    running = [r for r in e.running[: int(c.in_running)].tolist() if e.reqs[r].status == RUNNING]
    assert len(set(running)) == len(running), "a request runs twice"
    in_use = [int(r.slot) for r in e.reqs if r.slot >= 0]
    assert len(set(in_use)) == len(in_use), "two requests share a row"
