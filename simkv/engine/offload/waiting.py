"""Admission with a connector: local hit, then host hit, loads that hold blocks (v1/core/sched/scheduler.py, 0.32.0)."""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import RUNNING
from simkv.engine.offload.compiled import splice
from simkv.engine.offload.connector import external_hit, order_load
from simkv.engine.offload.holding import close_gap, reserved_blocks, sort_held
from simkv.engine.offload.layout import LOADED, LOADING, NOT_LOADING
from simkv.engine.offload.native import LATER
from simkv.engine.vllm.admission import add_row, count_lookup, must_wait, prepare_head, run_adapter
from simkv.engine.vllm.layout import NEW, RESUMED
from simkv.engine.vllm.lookup import find_hit, no_hit
from simkv.engine.vllm.pool import allocate, emit, touch
from simkv.engine.vllm.queue import clock, head, pop_head, push_front
from simkv.engine.vllm.slots import set_quiet, store_full_blocks
from simkv.events import layout as ev


@splice
def promote(h, e, cfg, c, r, s):
    """The load has ended: its blocks enter the prefix cache now."""
    slot = e.slots[s]
    if cfg.caching:
        store_full_blocks(e, cfg, c, s, np.int64(slot.computed))
    set_quiet(e.groups, e.lengths, e.slots, cfg, s)
    if slot.computed == slot.num_tokens:
        slot.computed -= 1
    h.reqs[r].loading = NOT_LOADING


@splice
def take_blocks(e, cfg, c, s, hit, computed, new, load, reserved):
    """allocate_slots() for the request in slot ``s``: blocks it may hold already, then hits, then new ones. False if it does not fit."""
    slot, at, row, size = e.slots[s], e.lengths[s], e.tables[s], e.groups[0].block_size
    watermark = cfg.watermark if c.running > 0 else 0
    found = hit // size
    have = at.length + found
    idle = 0
    for k in range(found):
        idle += e.blocks[row[k]].ref == 0
    if cfg.reserve_full_isl:
        whole = (min(slot.num_tokens, cfg.max_model_len) + size - 1) // size
        if max(whole - have, 0) + idle + watermark > c.free:
            return False
    missing = max((min(computed + new, cfg.max_model_len) + size - 1) // size - have, 0)
    if missing + idle + watermark > c.free - reserved:
        return False
    if found > 0:
        touch(e, cfg, c, slot.req, 0, row, 0, found)
        at.length = at.cached = found
    if missing > 0:
        allocate(e, cfg, c, slot.req, 0, row, np.int64(at.length), missing)
        at.length += missing
    if not load:
        if cfg.caching:
            store_full_blocks(e, cfg, c, s, min(computed + new, np.int64(slot.num_tokens)))
        set_quiet(e.groups, e.lengths, e.slots, cfg, s)
    return True


@splice
def count_host_lookup(hc, first_time, queries, hits):
    """Statistics of the connector: tokens that the local cache did not have; recomputed requests apart."""
    if first_time:
        hc.requests += 1
        hc.queries += queries
        hc.hits += hits
    else:
        hc.recompute_requests += 1
        hc.recompute_queries += queries
        hc.recompute_hits += hits


@splice
def look_in_both(native, simple, h, e, cfg, c, s, r):
    """Local hit and host hit (LATER: not known yet) of the request in slot ``s``, in tokens."""
    req = e.reqs[r]
    reads = cfg.caching and not req.skip_cache
    local = find_hit(e, cfg, c, s, e.slots[s].num_tokens) if reads else no_hit(e.groups, cfg, c)
    ext = external_hit(native, simple, h, e, cfg, c, s, r, local)
    h.counters[0].lookups += 1
    if req.skip_cache:
        ext = 0
    if ext == LATER:
        h.counters[0].postponed += 1
    elif req.preempted == 0:
        h.reqs[r].hit_local = local
        h.reqs[r].hit_host = ext
    return local, ext


@splice
def count_admission(h, e, cfg, c, s, r, local, ext):
    first_time, num_tokens = e.reqs[r].preempted == 0, e.slots[s].num_tokens
    count_host_lookup(h.counters[0], first_time, num_tokens - local, ext)
    if cfg.caching and not e.reqs[r].skip_cache:
        count_lookup(cfg, c, first_time, num_tokens, local)


@splice
def start_running(h, e, cfg, c, rows, s, r, n):
    """The request joins the running ones."""
    slot, req, q = e.slots[s], e.reqs[r], h.reqs[r]
    e.running[c.running] = s
    c.running += 1
    new = req.preempted == 0
    if new:
        req.hit = q.hit_local
        req.scheduled = clock(cfg, c)
    req.status = RUNNING
    req.slot = s
    q.slot = -1
    if cfg.log:
        emit(c, e.log, ev.ADMITTED if new else ev.RESUMED, 0, r, q.local_now)
    if cfg.max_loras > 0 and req.lora >= 0:
        run_adapter(e.adapters, c, req.lora)
    add_row(e.slots, c, rows, s, NEW if new else RESUMED, n)
    if slot.computed + n < slot.num_tokens:
        q.prefilling = 1


@splice
def leave_queue(e, cfg, c, holding):
    """Take the head of the waiting queue out; its slot is its own from now on."""
    if not holding:
        pop_head(e.reqs, e.queue, cfg, c)
        c.head_req = -1
        c.head_slot = -1


@splice
def serve(native, simple, h, e, cfg, c, rows, budget, threshold):
    """Admit from the holding queue, then from the waiting queue, until something does not fit. Returns the number admitted."""
    hc = h.counters[0]
    c.stamp += 1
    c.loras = 0
    if cfg.max_loras > 0:
        for i in range(c.rows):
            lora = e.reqs[rows[i].req].lora
            if lora >= 0:
                run_adapter(e.adapters, c, lora)
    skipped, admitted, kept, read, held = 0, 0, 0, 0, hc.held
    while budget > 0 and (read < held or c.wait_len > 0) and c.running < cfg.max_running:
        holding = read < held
        r = np.int64(h.hold[read]) if holding else np.int64(head(e.queue, cfg, c))
        req, q = e.reqs[r], h.reqs[r]
        if q.loading == LOADED:
            promote(h, e, cfg, c, r, np.int64(q.slot))
        ask_later = q.loading == LOADING or must_wait(e.adapters, cfg, c, req)
        s, local, ext = np.int64(q.slot), 0, 0
        if not ask_later and not holding:
            s = prepare_head(e, cfg, c, r)
            local, ext = look_in_both(native, simple, h, e, cfg, c, s, r)
            ask_later = ext == LATER
        if ask_later:
            if holding:
                h.hold[kept] = r
                kept += 1
                read += 1
            else:
                pop_head(e.reqs, e.queue, cfg, c)
                e.queue[skipped].skipped = r
                skipped += 1
            continue
        slot = e.slots[s]
        load = ext > 0
        computed = np.int64(slot.computed) if holding else local + ext
        n = 0
        if not load:
            n = slot.num_tokens - computed
            if 0 < threshold < n:
                n = threshold
            if not cfg.chunked and n > budget:
                break
            n = min(n, budget)
        reserved = reserved_blocks(h, e, cfg, c, kept, read) if load else 0
        if not take_blocks(e, cfg, c, s, local, computed, n, load, reserved):
            break
        order_load(native, simple, h, e, cfg, c, s, r, ext)
        if not holding:
            q.local_now = local
            count_admission(h, e, cfg, c, s, r, local, ext)
        leave_queue(e, cfg, c, holding)
        slot.computed = computed
        read += holding
        if load:
            q.loading, q.slot, q.prefilling = LOADING, s, 1
            h.books[s].length = 0
            h.hold[kept] = r
            kept += 1
            if held < kept:
                read = held = kept
                hc.held = kept
            continue
        start_running(h, e, cfg, c, rows, s, r, n)
        budget -= n
        admitted += 1
    close_gap(h, kept, read)
    if cfg.priority:
        sort_held(h, e.reqs)
    for k in range(skipped - 1, -1, -1):
        push_front(e.reqs, e.queue, cfg, c, e.queue[k].skipped)
    return admitted
