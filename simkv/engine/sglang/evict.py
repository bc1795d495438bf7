"""Eviction: whole leaves, worst first (mem_cache/evict_policy.py and unified_cache/components/full.py, 0.5.23).

A heap holds the leaves nobody has locked. SGLang builds its heap anew for every eviction; its keys do not change
while it evicts and time stamps are unique, so the victims are the same.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel
from simkv.engine.sglang.layout import FIFO, FILO, LFU, MRU, NONE, PRIORITY, ROOT, SLRU, TLRU
from simkv.engine.sglang.links import drop_node
from simkv.engine.sglang.log import emit_evicted
from simkv.engine.sglang.pages import available, put_back


@kernel
def order_of(cfg, node):
    """What decides before the time of the last access: the smallest is evicted first."""
    policy = cfg.eviction
    if policy == LFU:
        return np.int64(node.hits)
    if policy == SLRU:
        return np.int64(node.hits >= cfg.protected_threshold)
    if policy == PRIORITY:
        return np.int64(node.priority)
    if policy == TLRU:
        budget = max(node.history * cfg.page + cfg.tlru_estimate - cfg.tlru_threshold, 0)
        return np.int64(-1 if node.depth * cfg.page >= budget else 0)
    if policy == FIFO:
        return np.int64(node.created)
    if policy == FILO:
        return np.int64(-node.created)
    if policy == MRU:
        return np.int64(-node.stamp)
    return np.int64(0)


@inline
def goes_first(a, b):
    return a.order < b.order or (a.order == b.order and a.stamp < b.stamp)


@kernel
def sift(e, c, n, i):
    """Put node ``n`` where it belongs, beginning at heap position ``i``, which is free."""
    nodes, heap = e.nodes, e.heap
    while i > 0 and goes_first(nodes[n], nodes[heap[(i - 1) >> 1]]):
        up = heap[(i - 1) >> 1]
        heap[i] = up
        nodes[up].heap = i
        i = (i - 1) >> 1
    while True:
        below = 2 * i + 1
        if below >= c.heap_len:
            break
        if below + 1 < c.heap_len and goes_first(nodes[heap[below + 1]], nodes[heap[below]]):
            below += 1
        down = heap[below]
        if not goes_first(nodes[down], nodes[n]):
            break
        heap[i] = down
        nodes[down].heap = i
        i = below
    heap[i] = n
    nodes[n].heap = i


@kernel
def leave_heap(e, c, n):
    i = np.int64(e.nodes[n].heap)
    e.nodes[n].heap = NONE
    c.heap_len -= 1
    if i < c.heap_len:
        sift(e, c, np.int64(e.heap[c.heap_len]), i)


@kernel
def update_leaf(e, cfg, c, n):
    """The node's lock, children or keys have changed: enter, leave or move in the heap."""
    node = e.nodes[n]
    if n == ROOT or node.lock > 0 or node.children > 0:
        if node.heap >= 0:
            leave_heap(e, c, n)
        return
    node.order = order_of(cfg, node)
    if node.heap >= 0:
        sift(e, c, n, np.int64(node.heap))
    else:
        c.heap_len += 1
        sift(e, c, n, c.heap_len - 1)


@kernel
def evict_leaf(e, cfg, c):
    """Evict the first leaf of the heap; its pages are free at once. Returns how many."""
    from_tree = np.int64(e.heap[0])
    node = e.nodes[from_tree]
    n = np.int64(node.pages)
    victim = e.victims[c.victims]
    victim.run = node.run
    victim.at = node.at
    victim.depth = node.depth
    victim.pages = n
    victim.first = c.evicted
    c.victims += 1
    arena = e.arena[c.arena_half]
    for i in range(n):
        e.evicted[c.evicted + i] = arena[node.slots + i]
    put_back(e, cfg, c, e.evicted, c.evicted, n)
    if cfg.log:
        emit_evicted(e, cfg, c, c.evicted, n)
    c.evicted += n
    c.evictable -= n
    c.cached -= n
    c.removed += n
    leave_heap(e, c, from_tree)
    update_leaf(e, cfg, c, drop_node(e, c, from_tree))
    return n


@kernel
def evict_until(e, cfg, c, tokens):
    """Evict until the free list holds so many tokens, or nothing is left to evict. Returns whether it does."""
    while available(cfg, c) < tokens and c.heap_len > 0:
        evict_leaf(e, cfg, c)
    return available(cfg, c) >= tokens


@kernel
def evict_tokens(e, cfg, c, tokens):
    """Evict whole leaves until so many tokens are evicted. Returns how many were."""
    done = 0
    while done < tokens and c.heap_len > 0:
        done += evict_leaf(e, cfg, c) * cfg.page
    return done
