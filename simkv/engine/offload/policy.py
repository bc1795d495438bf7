"""Which chunk leaves the host tier: LRU and ARC (vllm/v1/kv_offload/cpu/policies, 0.32.0)."""

from __future__ import annotations

from simkv.engine.offload.chunks import append, find_node, forget_node, is_ghost, move, to_ghosts, unlink
from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.layout import B1, B2, INSERTED, REUSED, T1, T2


@inline
def next_evictable(k, x, place):
    """The first node from ``x`` on that nobody reads or writes and the present offer does not name; the head if none."""
    stamp = k.manager[0].stamp
    while x != place and (k.nodes[x].ref != 0 or k.nodes[x].stamp == stamp):
        x = k.nodes[x].next
    return x


@splice
def choose(k, arc, count):
    """``count`` victims into ``k.picks``, in order; False if there are too few."""
    p = int(k.manager[0].p)
    size = k.sizes[T1]
    x1 = next_evictable(k, k.nodes[T1].next, T1)
    x2 = next_evictable(k, k.nodes[T2].next, T2) if arc else T2
    for i in range(count):
        if x1 == T1 and x2 == T2:
            return False
        if x1 != T1 and (not arc or size >= p or x2 == T2):
            k.picks[i] = x1
            x1 = next_evictable(k, k.nodes[x1].next, T1)
            size -= 1
        else:
            k.picks[i] = x2
            x2 = next_evictable(k, k.nodes[x2].next, T2)
    return True


@splice
def evict(k, arc, most, count):
    """Evict ``count`` chunks or none. Their chunk ids and keys then stand in ``k.picks`` and ``k.picked_keys``."""
    if not choose(k, arc, count):
        return False
    m = k.manager[0]
    for i in range(count):
        x = k.picks[i]
        node = k.nodes[x]
        chunk, key = node.chunk, node.key
        if arc:
            to_ghosts(k, x, B1 if node.place == T1 else B2, most)
        else:
            forget_node(k, x)
        k.picks[i] = chunk
        k.picked_keys[i] = key
        k.free[m.free] = chunk
        m.free += 1
    m.evictable -= count
    m.evicted = count
    return True


@kernel
def ghost_hit(k, x, most):
    """ARC learns from content that was evicted too early: the target size of T1 moves.

    ``p_whole`` follows whether the engine's p would be a whole number in its own arithmetic, which recordings show.
    """
    m = k.manager[0]
    b1, b2 = float(k.sizes[B1]), float(k.sizes[B2])
    if k.nodes[x].place == B1:
        m.p_whole = m.p_whole != 0 and b2 <= b1
        m.p += max(1.0, b2 / b1)
        if m.p > most:
            m.p, m.p_whole = most, 1
        move(k, B1, x)
    else:
        m.p_whole = m.p_whole != 0 and b1 <= b2
        m.p -= max(1.0, b1 / b2)
        if m.p < 0:
            m.p, m.p_whole = 0.0, 1
        move(k, B2, x)


@splice
def touch_key(k, arc, most, key):
    """``touch`` of one key."""
    x = find_node(k, key)
    if x == 0:
        return
    if is_ghost(k, x):
        ghost_hit(k, x, most)
    elif arc and k.nodes[x].place == T1 and k.nodes[x].ref >= 0:
        unlink(k, x)
        append(k, T2, x)
    else:
        move(k, k.nodes[x].place, x)


@splice
def use_key(k, arc, key, flags):
    """A request that ended had to do with this chunk."""
    x = find_node(k, key)
    if x == 0 or is_ghost(k, x):
        return
    if not arc or flags & REUSED == 0:
        if not arc or flags & INSERTED != 0:
            move(k, k.nodes[x].place, x)
    else:
        unlink(k, x)
        append(k, T2, x)
