"""What any connector changes in the scheduler: blocks without a running request (v1/core/sched/scheduler.py, 0.32.0).

A request that loads holds blocks in a queue of its own; blocks of a request that a step in flight still computes on
return to the pool with that step's output; and a slot outlives its request while somebody still reads its table.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.layout import LOADED, LOADING, NOT_LOADING
from simkv.engine.vllm.pool import release
from simkv.engine.vllm.queue import earlier


@inline
def may_free(h, r):
    """Whether no step in flight computes on the request's blocks."""
    return h.config[0].defer == 0 or h.reqs[r].last_step <= h.counters[0].processed


@inline
def free_slot(h, e, c, s):
    """The slot is nobody's any more, unless somebody still reads its table."""
    if h.books[s].keep == 0:
        e.free_slots[c.free_slots] = s
        c.free_slots += 1


@inline
def stop_keeping(h, e, c, s):
    h.books[s].keep -= 1
    free_slot(h, e, c, s)


@kernel
def give_back_blocks(h, e, cfg, c, s, r):
    """Return the blocks of slot ``s`` to the pool, now or with the output of the step that computes on them."""
    at = e.lengths[s]
    n = np.int64(at.length)
    at.length = at.cached = at.trimmed = 0
    if n == 0:
        return
    if may_free(h, r):
        release(e, cfg, c, r, 0, e.tables[s], np.int64(0), n)
        return
    hc = h.counters[0]
    entry = h.deferred[(hc.deferred_head + hc.deferred_len) & (h.deferred.size - 1)]
    entry.step, entry.slot, entry.length, entry.req = hc.scheduled, s, n, r
    hc.deferred_len += 1
    h.books[s].keep += 1


@splice
def settle_step(h, e, cfg, c):
    """A step's output is here: return the blocks that waited for it."""
    hc = h.counters[0]
    hc.processed += 1
    while hc.deferred_len > 0 and h.deferred[hc.deferred_head].step <= hc.processed:
        entry = h.deferred[hc.deferred_head]
        release(e, cfg, c, entry.req, 0, e.tables[entry.slot], np.int64(0), np.int64(entry.length))
        stop_keeping(h, e, c, np.int64(entry.slot))
        hc.deferred_head = (hc.deferred_head + 1) & (h.deferred.size - 1)
        hc.deferred_len -= 1


@inline
def forget_book(h, e, c, r):
    """The connector no longer knows the blocks of this request."""
    s = np.int64(h.reqs[r].book)
    if s >= 0:
        h.reqs[r].book = -1
        stop_keeping(h, e, c, s)


@splice
def leave_slot(h, e, cfg, c, s, r):
    """A running request gives up its blocks and its slot; the connector keeps its table in mind."""
    if h.books[s].length > 0:
        forget_book(h, e, c, r)
        h.reqs[r].book = s
        h.books[s].keep += 1
    give_back_blocks(h, e, cfg, c, s, r)
    free_slot(h, e, c, s)


@splice
def drop_held(h, e, cfg, c, r):
    """A request that is not running gives up the blocks it holds."""
    q = h.reqs[r]
    s = np.int64(q.slot)
    if s >= 0:
        q.slot = -1
        q.loading = NOT_LOADING
        give_back_blocks(h, e, cfg, c, s, r)
        free_slot(h, e, c, s)


@splice
def remove_held(h, r):
    """Take a request out of the holding queue. Returns whether it was there."""
    hc = h.counters[0]
    i = 0
    while i < hc.held and h.hold[i] != r:
        i += 1
    if i == hc.held:
        return False
    for k in range(i, hc.held - 1):
        h.hold[k] = h.hold[k + 1]
    hc.held -= 1
    return True


@splice
def close_gap(h, kept, read):
    """Entries ``read …`` of the holding queue follow the ``kept`` first ones."""
    hc = h.counters[0]
    for i in range(read, hc.held):
        h.hold[kept] = h.hold[i]
        kept += 1
    hc.held = kept


@splice
def sort_held(h, reqs):
    """Priority policy: the holding queue is a heap too."""
    for i in range(1, h.counters[0].held):
        r = h.hold[i]
        k = i
        while k > 0 and earlier(reqs, r, h.hold[k - 1]):
            h.hold[k] = h.hold[k - 1]
            k -= 1
        h.hold[k] = r


@inline
def still_needed(e, cfg, s):
    size = e.groups[0].block_size
    whole = min(e.slots[s].num_tokens, cfg.max_model_len)
    return max((whole + size - 1) // size - e.lengths[s].length, 0)


@splice
def reserved_blocks(h, e, cfg, c, kept, read):
    """Blocks that prefills under way and other loads will still take."""
    total = 0
    for i in range(c.running):
        s = e.running[i]
        if h.reqs[e.slots[s].req].prefilling:
            total += still_needed(e, cfg, s)
    for i in range(h.counters[0].held):
        if i < kept or i >= read:
            q = h.reqs[h.hold[i]]
            if q.prefilling:
                total += still_needed(e, cfg, np.int64(q.slot))
    return total


@splice
def arrived(h, e, cfg, c, r):
    """A load of request ``r`` has ended: it may be admitted; one aborted meanwhile returns its blocks now."""
    q = h.reqs[r]
    if q.loading == LOADING:
        q.loading = LOADED
    else:
        h.counters[0].delayed -= 1
        s = np.int64(q.slot)
        q.slot = -1
        give_back_blocks(h, e, cfg, c, s, r)
        free_slot(h, e, c, s)
