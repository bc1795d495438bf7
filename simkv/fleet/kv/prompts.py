"""The prompts under way at each worker, as one radix tree of chain keys. Compiled.

How many different blocks a worker's requests hold, and how many a new prompt would add, follows from the tree's nodes; work is
done per node, not per block. A node's edge is a run of keys; its first key finds it, its last tells whether a prompt has it all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.request_keys import blocks_of, need_keys
from simkv.jit import record

U = np.uint64
HALF, LOW = U(32), U(0xFFFF_FFFF)
NODE = record(("key", "u8"), ("at", "i8"), ("blocks", "i4"), ("parent", "i4"), ("children", "i4"), ("requests", "i4"), align=True)
"""``at``: where its keys begin in the arena; ``requests``: requests of all workers whose prompts go through it. Node 0 is the root."""
META = record(("nodes", "i8"), ("free", "i8"), ("arena_at", "i8"), ("half", "i8"))
"""``nodes``: nodes ever taken, the root too; ``free``: first one given back, chained by their parents."""
WORKER = record(("units", "f8"), ("prefill", "i8"), ("requests", "i8"))
"""Load of a worker: blocks its requests hold (not all count in full, see ``shares``), prompt tokens not yet computed, requests."""
REQUEST = record(("output", "f8"), ("prefill", "i8"), ("tail", "i4"), ("worker", "i4"), ("outputs", "i4"), align=True)
"""A request under way: where its prompt ends in the tree, its worker (-1: it is not), prompt tokens not yet computed, blocks of
output it has reported, and what these count."""


class Prompts(NamedTuple):
    """N nodes, W workers, n requests. Entries that are called for every request take ``*prompts`` (see compiled.py)."""

    table: Any  # u8[2^k] open addressing: lower half of a first key, then the node
    nodes: Any  # NODE[N]
    counts: Any  # i4[N, W] requests of the worker that go through the node
    shares: Any  # f8[N, W] what one of the node's blocks counts in a worker's load; one element while all count 1
    until: Any  # f8[N, W] until when the worker is taken to have the node cached; one element if nobody asks
    arena: Any  # u8[2, A] keys, one half in use
    meta: Any  # META[1]
    workers: Any  # WORKER[W]
    requests: Any  # REQUEST[n]


@kernel
def node_place(p, key):
    """Table position that holds a first key, or the empty one where it would go."""
    mask = p.table.size - 1
    i = np.int64(key & U(mask))
    while True:
        word = p.table[i]
        if word == 0 or (word >> HALF == key & LOW and p.nodes[np.int64(word & LOW)].key == key):
            return i
        i = (i + 1) & mask


@kernel
def enter(p, x, key):
    p.nodes[x].key = key
    p.table[node_place(p, key)] = (key << HALF) | U(x)


@kernel
def leave(p, x):
    """Take a node out of the table; later entries of its probe chain move up."""
    mask = p.table.size - 1
    hole = node_place(p, p.nodes[x].key)
    i = hole
    while True:
        i = (i + 1) & mask
        word = p.table[i]
        if word == 0:
            break
        home = np.int64((word >> HALF) & U(mask))
        if (i - home) & mask >= (i - hole) & mask:
            p.table[hole] = word
            hole = i
    p.table[hole] = U(0)


@inline
def key_in(p, x, i):
    """Key of the ``i``-th block of a node's edge."""
    return p.arena[p.meta[0].half, p.nodes[x].at + i]


@kernel
def same_blocks(p, x, keys, done, n):
    """How many blocks of a node's edge are those of a prompt from block ``done`` on; the first one is."""
    most = min(np.int64(p.nodes[x].blocks), n - done)
    if key_in(p, x, most - 1) == keys[done + most - 1]:
        return most
    known, unknown = 1, most
    while unknown - known > 1:  # a key stands for all before it, so equal keys come first
        middle = (known + unknown) >> 1
        if key_in(p, x, middle - 1) == keys[done + middle - 1]:
            known = middle
        else:
            unknown = middle
    return known


@kernel
def new_node(p):
    meta = p.meta[0]
    x = meta.free
    if x != 0:
        meta.free = p.nodes[x].parent
    else:
        x = meta.nodes
        meta.nodes += 1
    node = p.nodes[x]
    node.blocks = node.parent = node.children = node.requests = 0
    p.counts[x] = 0
    if len(p.shares) > 1:
        p.shares[x] = 1.0
    if len(p.until) > 1:
        p.until[x] = -np.inf
    return x


@kernel
def split(p, x, blocks):
    """A new node takes the first blocks of a node's edge; the node keeps the rest, and its identity."""
    y = new_node(p)
    upper, lower = p.nodes[y], p.nodes[x]
    upper.at, upper.blocks, upper.parent = lower.at, blocks, lower.parent
    upper.children, upper.requests = 1, lower.requests
    for w in range(p.counts.shape[1]):
        p.counts[y, w] = p.counts[x, w]
        if len(p.shares) > 1:
            p.shares[y, w] = p.shares[x, w]
        if len(p.until) > 1:
            p.until[y, w] = p.until[x, w]
    leave(p, x)
    enter(p, y, np.uint64(lower.key))
    lower.at += blocks
    lower.blocks -= blocks
    lower.parent = y
    enter(p, x, key_in(p, x, 0))
    return y


@kernel
def descend(p, keys, n):
    """Node where a prompt of ``n`` blocks ends, made if it is not there."""
    x, done = np.int64(0), 0
    while done < n:
        y = np.int64(p.table[node_place(p, keys[done])] & LOW)
        if y == 0:
            meta = p.meta[0]
            y = new_node(p)
            node = p.nodes[y]
            node.at, node.blocks, node.parent = meta.arena_at, n - done, x
            for i in range(n - done):
                p.arena[meta.half, meta.arena_at + i] = keys[done + i]
            meta.arena_at += n - done
            p.nodes[x].children += 1
            enter(p, y, keys[done])
            return y
        same = same_blocks(p, y, keys, done, n)
        if same < p.nodes[y].blocks:
            y = split(p, y, same)
        x, done = y, done + same
    return x


@kernel
def drop_unused(p, x, now):
    """Take away a node nobody uses, and its ancestors of which that is then true."""
    while x != 0:
        node = p.nodes[x]
        if node.requests > 0 or node.children > 0:
            return
        if len(p.until) > 1:
            for w in range(p.until.shape[1]):
                if p.until[x, w] > now:
                    return
        leave(p, x)
        parent = np.int64(node.parent)
        node.blocks = 0
        node.parent = p.meta[0].free
        p.meta[0].free = x
        p.nodes[parent].children -= 1
        x = parent


@kernel
def count_held(p, k, req, out):
    """Leading blocks of a prompt that requests of each worker hold."""
    out[:] = 0
    n = blocks_of(k, req)
    need_keys(k, req, n)
    done = 0
    while done < n:
        x = np.int64(p.table[node_place(p, k.keys[done])] & LOW)
        if x == 0:
            return
        same = same_blocks(p, x, k.keys, done, n)
        done += same
        for w in range(out.size):
            if p.counts[x, w] > 0:
                out[w] = done
        if same < p.nodes[x].blocks:
            return


@kernel
def count_believed(p, k, req, now, out):
    """Leading blocks of a prompt that each worker is taken to have cached."""
    out[:] = 0
    n = blocks_of(k, req)
    need_keys(k, req, n)
    done = 0
    while done < n:
        x = np.int64(p.table[node_place(p, k.keys[done])] & LOW)
        if x == 0:
            return
        same = same_blocks(p, x, k.keys, done, n)
        done += same
        for w in range(out.size):
            if p.until[x, w] > now:
                out[w] = done
        if same < p.nodes[x].blocks:
            return


@entry
def sweep(p, now):
    """Take away what nobody uses any more (entries that have expired), and move the keys together."""
    for x in range(1, p.meta[0].nodes):
        if p.nodes[x].blocks > 0:
            drop_unused(p, x, now)
    half, at = p.meta[0].half, 0
    for x in range(1, p.meta[0].nodes):
        node = p.nodes[x]
        for i in range(node.blocks):
            p.arena[1 - half, at + i] = p.arena[half, node.at + i]
        if node.blocks > 0:
            node.at = at
            at += node.blocks
    p.meta[0].half = 1 - half
    p.meta[0].arena_at = at
