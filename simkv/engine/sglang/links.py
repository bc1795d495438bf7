"""Nodes and how they hang together: stamps, the table that finds a child by its first page, the list of children.

One hash table serves all nodes: a child's key is a hash of its parent and of the first page of its edge. The children of
a node also stand in a list in order of insertion, as in the dictionaries of unified_tree_core.py (0.5.23).
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.content import hash_tokens
from simkv.engine.sglang.layout import NONE, ROOT
from simkv.engine.vllm.keys import mix

U = np.uint64
HALF, LOW = U(32), U(0xFFFF_FFFF)
STAMP_BITS = 20


@inline
def tick(c):
    """The next time stamp; stamps between two ticks are for the ancestors of a matched node."""
    c.clock += 1
    return c.clock << STAMP_BITS


@kernel
def child_key(e, cfg, parent, namespace, run, at):
    """Key of the child of ``parent`` whose edge begins with the page at this position."""
    where = mix(mix(U(1), U(parent)), U(namespace if parent == ROOT else 0))
    return hash_tokens(e.runs, e.tokens, run, at, cfg.page, where)


@kernel
def find_place(nodes, table, key):
    """Table position that holds ``key``, or the empty one where it would go."""
    mask = table.size - 1
    i = np.int64(key & U(mask))
    while True:
        word = table[i]
        if word == 0 or (word >> HALF == key & LOW and nodes[np.int64(word & LOW)].key == key):
            return i
        i = (i + 1) & mask


@inline
def enter(nodes, table, n):
    key = nodes[n].key
    table[find_place(nodes, table, key)] = (key << HALF) | U(n)


@inline
def find_child(nodes, table, key):
    """The child, 0 if there is none."""
    return np.int64(table[find_place(nodes, table, key)] & LOW)


@splice
def leave(nodes, table, n):
    """Take a node out of the table; later entries of its probe chain move up."""
    mask = table.size - 1
    hole = find_place(nodes, table, nodes[n].key)
    i = hole
    while True:
        i = (i + 1) & mask
        word = table[i]
        if word == 0:
            break
        home = np.int64(nodes[np.int64(word & LOW)].key & U(mask))
        if (i - home) & mask >= (i - hole) & mask:
            table[hole] = word
            hole = i
    table[hole] = U(0)


@kernel
def new_node(e, c):
    n = c.free_node
    if n != 0:
        c.free_node = e.nodes[n].next
    else:
        n = c.nodes
        c.nodes += 1
    node = e.nodes[n]
    node.stamp = tick(c)
    node.created = tick(c)
    node.first = node.last = node.prev = node.next = node.children = node.lock = node.hits = node.history = 0
    node.heap = NONE
    node.pass_of = 0
    return n


@kernel
def append_child(nodes, parent, n):
    p = nodes[parent]
    node = nodes[n]
    node.parent = parent
    node.prev = p.last
    node.next = 0
    if p.last != 0:
        nodes[p.last].next = n
    else:
        p.first = n
    p.last = n
    p.children += 1


@splice
def remove_child(nodes, n):
    node = nodes[n]
    p = nodes[node.parent]
    if node.prev != 0:
        nodes[node.prev].next = node.next
    else:
        p.first = node.next
    if node.next != 0:
        nodes[node.next].prev = node.prev
    else:
        p.last = node.prev
    p.children -= 1


@splice
def take_place(nodes, n, of):
    """Node ``n`` stands in the list of children where ``of`` stood."""
    old, node = nodes[of], nodes[n]
    p = nodes[old.parent]
    node.parent = old.parent
    node.prev = old.prev
    node.next = old.next
    if old.prev != 0:
        nodes[old.prev].next = n
    else:
        p.first = n
    if old.next != 0:
        nodes[old.next].prev = n
    else:
        p.last = n


@splice
def drop_node(e, c, n):
    """A childless node leaves the tree; its parent is returned."""
    parent = np.int64(e.nodes[n].parent)
    leave(e.nodes, e.table, n)
    remove_child(e.nodes, n)
    e.nodes[n].pages = 0
    e.nodes[n].next = c.free_node
    c.free_node = n
    return parent
