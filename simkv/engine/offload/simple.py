"""SimpleCPUOffloadConnector, scheduler side (vllm/v1/simple_kv_offload/manager.py, 0.32.0).

Blocks of the device's size in a second pool. Host blocks of a hit and device blocks of any copy are pinned by reference.
Eager: a request stores what was computed before this step; lazy: blocks next to be evicted from the device are stored.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.compiled import kernel, splice
from simkv.engine.offload.host_blocks import find_host, forget_host, name_host, pin_host, unpin_host
from simkv.engine.offload.layout import LAZY, LOAD, STORE
from simkv.engine.offload.simple_store import add_to_store, select_eager, store_eager, store_lazy
from simkv.engine.offload.trace import T_ALLOC, T_GET, note
from simkv.engine.offload.worker import new_job
from simkv.engine.vllm.keys import block_keys
from simkv.engine.vllm.pool import emit, release, touch
from simkv.events import layout as ev


@kernel
def unpin_found(m, keys, first, count):
    """Drop the pins on a request's host hit."""
    front = 0
    for i in range(first, first + count):
        front = unpin_host(m, find_host(m, keys[i]), front)


@kernel
def drop_pins(h, m, r, keys):
    """The request no longer waits with a host hit of its last lookup."""
    q, pool = h.reqs[r], m.pool[0]
    if q.pinned == 0:
        return
    unpin_found(m, keys, np.int64(q.local), np.int64(q.pinned))
    q.pinned = 0
    i = 0
    while m.pins[i] != r:
        i += 1
    pool.num_pins -= 1
    for k in range(i, pool.num_pins):
        m.pins[k] = m.pins[k + 1]


@splice
def simple_hit(h, m, e, cfg, c, s, r, local):
    """get_num_new_matched_tokens(): the run behind the local hit, never the last token's block; it is pinned at once."""
    q, keys = h.reqs[r], e.keys[s]
    drop_pins(h, m, r, keys)
    found, first = 0, local // cfg.hash_block
    if e.reqs[r].skip_cache == 0:
        stop = first + max(0, e.slots[s].num_tokens - 1 - local) // cfg.hash_block
        while first + found < stop:
            b = find_host(m, keys[first + found])
            if b == 0:
                break
            found += 1
        for i in range(first, first + found):
            pin_host(m, find_host(m, keys[i]))
    if found > 0:
        q.pinned, q.local = found, first
        m.pins[m.pool[0].num_pins] = r
        m.pool[0].num_pins += 1
    note(h, T_GET)
    note(h, r)
    note(h, local)
    note(h, found * cfg.hash_block)
    note(h, 0)
    return found * cfg.hash_block


@splice
def simple_load(h, m, e, cfg, c, s, r, tokens):
    """update_state_after_alloc(): the pinned run is loaded; all loads of a step are one copy."""
    note(h, T_ALLOC)
    note(h, r)
    note(h, tokens)
    q, hc, pool = h.reqs[r], h.counters[0], m.pool[0]
    q.known = h.config[0].connector != LAZY
    if tokens == 0:
        return
    count, first = np.int64(q.pinned), np.int64(q.local)
    q.pinned = 0
    pool.num_pins -= 1  # pinned in the lookup just before: the newest entry
    touch(e, cfg, c, -1, 0, e.tables[s], first, first + count)
    q.load_first, q.load_blocks, q.load_next = first, count, -1
    if pool.step_load == 0:
        pool.step_load = new_job(h, r, LOAD, c.batch, 0)
        h.jobs[pool.step_load].number = pool.load_events
        pool.load_events += 1
        hc.loads += 1
    else:
        h.reqs[pool.last_load].load_next = r
    pool.last_load = r
    h.jobs[pool.step_load].blocks += count
    hc.load_blocks += count
    hc.loading += count
    pool.live_loads += 1
    if cfg.log:
        emit(c, e.log, ev.LOAD_STARTED, 0, r, count)


@splice
def simple_build(h, m, e, cfg, c, rows):
    """build_connector_meta(): the stores of this step are one copy; a preemption waits for all copies under way."""
    hc, pool, bit = h.counters[0], m.pool[0], 1 << c.batch
    hc.flushing &= ~bit
    if hc.victims > 0:
        hc.flushing |= bit
        j = np.int64(h.jobs[0].after)
        while j > 0:
            if j != pool.step_load:
                h.jobs[j].flush |= bit
            j = np.int64(h.jobs[j].after)
    pool.step_load = 0
    late_head, late_tail, late_len = pool.chain_head, pool.chain_tail, pool.chain_len
    pool.chain_head = pool.chain_tail = pool.chain_len = 0
    if h.config[0].connector == LAZY:
        store_lazy(h, m, e, cfg, c)
    else:
        for v in range(hc.victims):
            h.reqs[h.victims[v]].store_from = 0
        store_eager(h, m, e, cfg, c, rows, True)
        store_eager(h, m, e, cfg, c, rows, False)
        if late_len > 0:
            if pool.chain_head == 0:
                pool.chain_head = late_head
            else:
                m.behind[pool.chain_tail] = late_head
            pool.chain_tail = late_tail
            pool.chain_len += late_len
    if pool.chain_len > 0:
        j = new_job(h, -1, STORE, c.batch, pool.chain_len)
        job = h.jobs[j]
        job.number, job.head, job.chunks = pool.store_events, pool.chain_head, pool.chain_len
        pool.store_events += 1
        pool.live_stores += 1
        hc.stores += 1
        hc.store_blocks += pool.chain_len
        if cfg.log:
            emit(c, e.log, ev.STORE_STARTED, 0, -1, pool.chain_len)
        pool.chain_head = pool.chain_tail = pool.chain_len = 0


@splice
def simple_ended(h, m, e, cfg, c, r):
    """request_finished(): what it has not stored yet goes with the next step's store."""
    q, req = h.reqs[r], e.reqs[r]
    s = np.int64(req.slot) if req.slot >= 0 else np.int64(q.slot)
    if q.known and s >= 0:
        computed, size = np.int64(e.slots[s].computed), cfg.hash_block
        blocks = min((computed + size - 1) // size, np.int64(e.lengths[s].length))
        _, count = select_eager(h, m, e, cfg, c, s, r, blocks, computed - e.slots[s].placeholders)
        if count > 0:
            add_to_store(h, m, e, cfg, c, count, -1)
    if q.pinned > 0:
        block_keys(req, e.runs, e.tokens, e.images, cfg.hash_block, q.local + q.pinned, h.keys)
        drop_pins(h, m, r, h.keys)
    q.gone = 1
    if q.store_events == 0:
        q.known = 0


@kernel
def release_forward(m, e, cfg, c, count):
    """Drop the references of ``count`` device blocks in ``m.chosen``, which names them from last to first."""
    release(e, cfg, c, -1, 0, m.chosen, np.int64(0), np.int64(count))


@splice
def load_ended(h, m, e, cfg, c, r):
    """The pins of one request's load go."""
    q = h.reqs[r]
    s, count = np.int64(q.slot), np.int64(q.load_blocks)
    unpin_found(m, e.keys[s], np.int64(q.load_first), count)
    for i in range(count):
        m.chosen[i] = e.tables[s, q.load_first + count - 1 - i]
    release_forward(m, e, cfg, c, count)
    m.pool[0].live_loads -= 1


@kernel
def store_ended(h, m, e, cfg, c, head, count, named, kept):
    """A store's pins go. ``named``: its blocks get their keys first; ``kept``: it is still known whose they are."""
    pool = m.pool[0]
    b, i = np.int64(head), 0
    for i in range(count):
        source = np.int64(m.source[b])
        m.chosen[count - 1 - i] = source
        if kept:
            m.storing[source] = 0
        if named:
            name_host(h, m, e, cfg, c, b, e.blocks[source].key)
        b = np.int64(m.behind[b])
    b, front = np.int64(head), np.int64(0)
    for _ in range(count):
        if named and m.owner[b] >= 0:
            q = h.reqs[m.owner[b]]
            q.store_events -= 1
            if q.gone and q.store_events == 0:
                q.known = 0
        following = np.int64(m.behind[b])
        front = np.int64(unpin_host(m, b, front))
        b = following
    release_forward(m, e, cfg, c, count)
    pool.pending_blocks -= count


@splice
def simple_completed(h, m, e, cfg, c, ended):
    """update_connector_output(): loads first, then stores."""
    for i in range(ended):
        job = h.jobs[h.done[i]]
        if job.direction == LOAD:
            r = np.int64(job.req)
            while r >= 0:
                following = np.int64(h.reqs[r].load_next)
                load_ended(h, m, e, cfg, c, r)
                r = following
        else:
            store_ended(h, m, e, cfg, c, job.head, job.chunks, job.stale == 0, job.stale == 0)
            m.pool[0].live_stores -= 1


@splice
def simple_reset(h, m, e, cfg, c):
    """reset(): clears host memory unless copies are under way; their ends no longer count as stores."""
    pool = m.pool[0]
    while pool.num_pins > 0:
        r = np.int64(m.pins[0])
        q = h.reqs[r]
        block_keys(e.reqs[r], e.runs, e.tokens, e.images, cfg.hash_block, q.local + q.pinned, h.keys)
        drop_pins(h, m, r, h.keys)
    j = np.int64(h.jobs[0].after)
    while j > 0:
        h.jobs[j].stale = 1
        j = np.int64(h.jobs[j].after)
    if pool.chain_len > 0:
        store_ended(h, m, e, cfg, c, pool.chain_head, pool.chain_len, False, True)
        pool.chain_head = pool.chain_tail = pool.chain_len = 0
    for b in range(m.storing.size):
        m.storing[b] = 0
    for i in range(e.reqs.size):
        q = h.reqs[i]
        q.known = q.store_from = q.store_events = 0
    pool.cursor = -1
    if pool.live_stores > 0 or pool.live_loads > 0 or pool.free != m.blocks.size - 1:
        return False
    forget_host(m)
    h.counters[0].resets += 1
    if cfg.log:
        emit(c, e.log, ev.HOST_CLEARED, 0, -1, 0)
    return True
