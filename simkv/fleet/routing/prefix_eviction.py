"""What leaves a prefix tree: the oldest leaves while it is too big, and everything of a worker that left.

A worker's leaf is a node it holds while it holds none of the node's children (sgl-model-gateway/src/policies/tree.rs,
``evict_tenant_by_size`` and ``remove_tenant``; smg's crates/kv_index the same over all workers together).
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.compiled import entry, kernel
from simkv.fleet.routing.prefix_tree import ABSENT, NOBODY, ROOT, PrefixTree, let_go


@kernel
def older(stamps, a, b):
    """Whether entry ``a`` (node × workers + worker) goes before ``b``. The rule says nothing of equally old ones."""
    workers = stamps.shape[1]
    x, y = stamps[a // workers, a % workers], stamps[b // workers, b % workers]
    return x < y or (x == y and a < b)


@kernel
def push(stamps, heap, n, item):
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if not older(stamps, item, heap[up]):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = item
    return n + 1


@kernel
def sink(stamps, heap, n):
    """The first has been taken: the last finds its place from the top."""
    item, i = heap[n - 1], 0
    n -= 1
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and older(stamps, heap[child + 1], heap[child]):
            child += 1
        if not older(stamps, heap[child], item):
            break
        heap[i] = heap[child]
        i = child
    if n > 0:
        heap[i] = item
    return n


@entry
def _evict(nodes, stamps, table, state, sizes, first, last, limit, children, heap):
    """Oldest leaves of workers ``first … last-1`` go while these hold more than ``limit`` units together."""
    t = PrefixTree(nodes, stamps, table, state, sizes)
    workers = t.stamps.shape[1]
    used = np.int64(t.state[0].used)
    size = np.int64(0)
    for w in range(first, last):
        size += t.sizes[w]
    for n in range(1, used):
        for w in range(first, last):
            if t.stamps[n, w] != ABSENT:
                children[t.nodes[n].parent, w] += 1
    entries = 0
    for n in range(1, used):
        for w in range(first, last):
            if t.stamps[n, w] != ABSENT and children[n, w] == 0:
                entries = push(t.stamps, heap, entries, n * workers + w)
    while size > limit and entries > 0:
        n, w = heap[0] // workers, heap[0] % workers
        entries = sink(t.stamps, heap, entries)
        size -= t.nodes[n].end - t.nodes[n].begin
        parent = np.int64(t.nodes[n].parent)
        let_go(t, n, w)
        children[parent, w] -= 1
        if parent != ROOT and children[parent, w] == 0:
            entries = push(t.stamps, heap, entries, parent * workers + w)
    t.state[0].req = NOBODY


@entry
def _forget(nodes, stamps, table, state, sizes, worker):
    t = PrefixTree(nodes, stamps, table, state, sizes)
    for n in range(1, t.state[0].used):
        if t.stamps[n, worker] != ABSENT:
            let_go(t, n, worker)
    t.state[0].req = NOBODY


def evict_each(t: PrefixTree, limit: float) -> None:
    """No worker holds more than ``limit`` units afterwards."""
    for w in np.flatnonzero(t.sizes > limit).tolist():
        _evict(*t, w, w + 1, int(limit), *_scratch(t))


def evict_total(t: PrefixTree, limit: float) -> None:
    """All workers together hold no more than ``limit`` units afterwards; a node counts once for each that holds it."""
    if t.state["total"][0] > limit:
        _evict(*t, 0, t.stamps.shape[1], int(limit), *_scratch(t))


def forget_worker(t: PrefixTree, worker: int) -> None:
    """The worker holds nothing any more."""
    _forget(*t, worker)


def _scratch(t: PrefixTree) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(t.stamps.shape, np.int32), np.empty(t.stamps.size, np.int64)
