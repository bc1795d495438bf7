"""The native tier's manager: what may be loaded, stored and forgotten (vllm/v1/kv_offload/cpu/manager.py, 0.32.0).

Calls name chunks through ``k.offer`` (keys) and ``k.places`` (where the request keeps its flags of that chunk).
"""

from __future__ import annotations

from simkv.engine.offload.chunks import find_chunk, find_node, forget_node, insert_chunk
from simkv.engine.offload.compiled import inline, splice
from simkv.engine.offload.layout import FIRST_NODE, INSERTED, MISSED, REUSED, SEEN
from simkv.engine.offload.policy import evict, ghost_hit, use_key
from simkv.engine.offload.tracker import count_offer, times_offered

MISS, HIT, PENDING = 0, 1, 2


@splice
def look_up(k, key):
    x = find_chunk(k, key)
    if x == 0:
        return MISS
    return PENDING if k.nodes[x].ref < 0 else HIT


@splice
def pin_chunk(k, key, place):
    """Keep a chunk while it is read. Returns its node."""
    x = find_chunk(k, key)
    k.manager[0].evictable -= k.nodes[x].ref == 0
    k.nodes[x].ref += 1
    flags = k.flags[place]
    k.flags[place] = flags | (SEEN if flags & INSERTED else SEEN | REUSED)
    return x


@inline
def unpin_chunk(k, x):
    k.nodes[x].ref -= 1
    k.nodes[x].loading = 0
    k.manager[0].evictable += k.nodes[x].ref == 0


@inline
def take_chunk_id(k, chunks):
    """Fresh ids first, then the one freed last."""
    m = k.manager[0]
    if m.fresh < chunks:
        m.fresh += 1
        return m.fresh - 1
    m.free -= 1
    return k.free[m.free]


@splice
def prepare_store(k, hc, count):
    """Room for those of ``count`` offered chunks that are not there yet, all or nothing.

    Returns how many are to be stored (their nodes in ``k.taken``, their index in the offer in the node), or -1 if
    refused. ``manager.evicted`` chunks had to go.
    """
    m = k.manager[0]
    m.evicted = 0
    m.stamp += 1
    if hc.threshold >= 2:
        count_offer(k, hc.tracked, count)
    new = 0
    for i in range(count):
        x = find_chunk(k, k.offer[i])
        at = k.places[i]
        flags = k.flags[at]
        if x > 0:
            k.nodes[x].stamp = m.stamp
            if k.nodes[x].ref >= 0:
                k.flags[at] = flags | (SEEN if flags & INSERTED else SEEN | REUSED)
            continue
        if hc.threshold >= 2 and times_offered(k, k.offer[i]) < hc.threshold:
            m.skipped += 1
            continue
        k.flags[at] = flags | SEEN
        k.taken[new] = i
        new += 1
    for j in range(new - 1, -1, -1):
        i = k.taken[j]
        flags = k.flags[k.places[i]]
        if flags & MISSED == 0:
            k.flags[k.places[i]] = flags | MISSED
            if hc.arc:
                x = find_node(k, k.offer[i])
                if x > 0:
                    ghost_hit(k, x, hc.chunks)
    m.wanted = new
    if new == 0:
        return 0
    short = new - (m.free + hc.chunks - m.fresh)
    if short > 0 and (short > m.evictable or not evict(k, hc.arc, hc.chunks, short)):
        return -1
    for j in range(new):
        i = k.taken[j]
        x = insert_chunk(k, k.offer[i], take_chunk_id(k, hc.chunks))
        k.nodes[x].offer = i
        k.flags[k.places[i]] |= INSERTED
        k.taken[j] = x
    m.pending += new
    return new


@splice
def chunk_written(k, x):
    k.nodes[x].ref = 0
    k.manager[0].pending -= 1
    k.manager[0].evictable += 1


@splice
def write_failed(k, x):
    """The chunk is given up (no worker of 0.32.0 reports this)."""
    m = k.manager[0]
    m.pending -= 1
    k.free[m.free] = k.nodes[x].chunk
    m.free += 1
    forget_node(k, x)


@splice
def recency_of_key(k, hc, key, place):
    """At a request's end: its chunk, if it had to do with it, becomes recent. To be called tail first."""
    if k.flags[place] & SEEN:
        use_key(k, hc.arc, key, k.flags[place])


@splice
def clear(k, hc):
    """Forget everything (``reset_cache``); chunk ids begin at 0 again."""
    m = k.manager[0]
    for i in range(k.table.size):
        k.table[i] = 0
    for place in range(FIRST_NODE):
        k.nodes[place].next = place
        k.nodes[place].previous = place
        k.nodes[place].place = place
        k.sizes[place] = 0
    m.spare = k.spare.size
    for i in range(k.spare.size):
        k.spare[i] = FIRST_NODE + k.spare.size - 1 - i
    m.p, m.p_whole = 0.0, 0
    m.fresh = m.free = m.evictable = m.pending = m.evicted = 0
    m.generation += 1
