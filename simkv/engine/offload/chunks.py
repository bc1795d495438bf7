"""Chunks of the host tier: their table by key and their lists in order of recency (vllm/v1/kv_offload/cpu, 0.32.0)."""

from __future__ import annotations

from simkv.engine.offload.compiled import inline, splice
from simkv.engine.offload.layout import B1, T2
from simkv.engine.vllm.pool import delete_position, entry_at, find_position, tagged


@inline
def find_node(k, key):
    """Chunk or ghost with this key, 0 if there is none."""
    return entry_at(k.table, find_position(k.nodes, k.table, key))


@inline
def find_chunk(k, key):
    """Chunk in host memory with this key, 0 if there is none."""
    x = find_node(k, key)
    return x if x > 0 and k.nodes[x].place <= T2 else 0


@inline
def unlink(k, x):
    node = k.nodes[x]
    k.nodes[node.previous].next = node.next
    k.nodes[node.next].previous = node.previous
    k.sizes[node.place] -= 1


@inline
def append(k, place, x):
    """Put a node at the most recent end of a list."""
    node = k.nodes[x]
    last = k.nodes[place].previous
    node.place = place
    node.previous = last
    node.next = place
    k.nodes[last].next = x
    k.nodes[place].previous = x
    k.sizes[place] += 1


@inline
def move(k, place, x):
    unlink(k, x)
    append(k, place, x)


@splice
def new_node(k, key):
    """An unlinked node under a key that has none yet."""
    m = k.manager[0]
    m.spare -= 1
    x = k.spare[m.spare]
    k.nodes[x].key = key
    k.table[find_position(k.nodes, k.table, key)] = tagged(key, x)
    return x


@inline
def forget_node(k, x):
    """Unlink a node and its key."""
    m = k.manager[0]
    unlink(k, x)
    delete_position(k.table, find_position(k.nodes, k.table, k.nodes[x].key))
    k.spare[m.spare] = x
    m.spare += 1


@splice
def insert_chunk(k, key, chunk):
    """A chunk that is about to be written, most recent in T1; a ghost of it ends."""
    x = find_node(k, key)
    if x == 0:
        x = new_node(k, key)
    else:
        unlink(k, x)
    append(k, 1, x)
    node = k.nodes[x]
    node.chunk = chunk
    node.ref = -1
    node.loading = 0
    node.stamp = 0
    return x


@splice
def to_ghosts(k, x, ghosts, most):
    """An evicted chunk is remembered, the oldest ghost of a full list is not any more."""
    if k.sizes[ghosts] >= most:
        forget_node(k, k.nodes[ghosts].next)
    move(k, ghosts, x)
    k.nodes[x].chunk = -1


@inline
def is_ghost(k, x):
    return x > 0 and k.nodes[x].place >= B1
