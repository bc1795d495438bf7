"""The one reading of the log that all pictures share: apply rows to a pool, a free queue and block tables.

Holds no engine's policy: where a released block goes stands in the log.
"""

from __future__ import annotations

import numpy as np

from simkv.events import layout as ev
from simkv.events.folds.compiled import inline, kernel


@inline
def mark(c, blocks, changes, b, turn):
    block = blocks[b]
    block.since = turn
    if block.touched != c.frame:
        block.touched = c.frame
        changes[c.changed] = b
        c.changed += 1


@inline
def unlink(blocks, b):
    """Take a block out of the free queue; a block outside it is linked to itself, and nothing happens."""
    block = blocks[b]
    blocks[block.prev].next = block.next
    blocks[block.next].prev = block.prev
    block.next = b
    block.prev = b


@inline
def link_after(blocks, p, b):
    n = blocks[p].next
    blocks[b].prev = p
    blocks[b].next = n
    blocks[p].next = b
    blocks[n].prev = b


@kernel
def table_of(s, c, req, group):
    """Index of the request's table, made at its first block."""
    slot = s.slot_of[req]
    groups = s.sliding.size
    if slot < 0:
        c.free_slots -= 1
        slot = s.free_slots[c.free_slots]
        s.slot_of[req] = slot
        s.slots[slot].req = req
        s.slots[slot].order = c.admissions
        c.admissions += 1
        for g in range(groups):
            s.lengths[slot * groups + g].length = 0
            s.lengths[slot * groups + g].stored = 0
    return np.int64(slot * groups + group)


@inline
def append(s, t, b):
    s.tables[t, s.lengths[t].length] = b
    s.lengths[t].length += 1


@inline
def forget_key(block):
    block.key = np.uint64(0)
    block.writer = -1
    block.position = 0


@inline
def drop_request(s, c, req):
    slot = s.slot_of[req]
    if slot >= 0:
        s.slot_of[req] = -1
        s.slots[slot].req = -1
        s.free_slots[c.free_slots] = slot
        c.free_slots += 1


@inline
def take_block(s, c, req, group, b, turn):
    """ALLOCATED, RECYCLED and HIT: one more entry of the request's table, or another in place of one (after ADOPTED).

    Without a request (-1) a copy to or from host memory holds the block.
    """
    block = s.blocks[b]
    if block.ref == 0:
        unlink(s.blocks, b)
    block.ref += 1
    if req < 0:
        mark(c, s.blocks, s.changes, b, turn)
        return
    t = table_of(s, c, req, group)
    if c.adopt_at >= 0 and c.adopt_table == t:
        s.tables[t, c.adopt_at] = b
        c.adopt_at += 1
        s.lengths[t].length = max(s.lengths[t].length, c.adopt_at)
    else:
        append(s, t, b)
    mark(c, s.blocks, s.changes, b, turn)


@inline
def free_block(s, c, req, group, b, back):
    """Put a block at the tail, or at the head behind its predecessors of the same release."""
    s.blocks[b].ref = 0
    if s.reserves[0]:
        forget_key(s.blocks[b])
    if back:
        link_after(s.blocks, s.blocks[0].prev, b)
    else:
        if c.front_req != req or c.front_group != group:
            c.front = 0
        link_after(s.blocks, c.front, b)
        c.front = b


@kernel
def as_new(s, c, turn):
    """A process that has just started: nobody holds a block, and the free queue has its first order."""
    n = s.blocks.size
    for x in range(n):
        if s.blocks[x].ref > 0:
            mark(c, s.blocks, s.changes, x, turn)
        s.blocks[x].ref = 0
        s.blocks[x].next = (x + 1) % n
        s.blocks[x].prev = (x - 1) % n
    for slot in range(s.slots.size):
        if s.slots[slot].req >= 0:
            drop_request(s, c, np.int64(s.slots[slot].req))


@kernel
def apply_rows(s, c, events, keys, first, last, turn):
    """Apply rows ``first … last-1`` of the log, which belong to one turn."""
    for i in range(first, last):
        row = events[i]
        kind = row.kind & ev.KIND_MASK
        group = np.int64(row.kind >> ev.KIND_BITS)
        req = np.int64(row.req)
        b = np.int64(row.arg)
        if kind == ev.RELEASED or kind == ev.FREED_FRONT or kind == ev.FREED_BACK:
            if kind == ev.RELEASED:
                s.blocks[b].ref -= 1
            else:
                free_block(s, c, req, group, b, kind == ev.FREED_BACK)
            mark(c, s.blocks, s.changes, b, turn)
            if c.front_req != req or c.front_group != group:
                c.front_req = req
                c.front_group = group
                if kind != ev.FREED_FRONT:
                    c.front = 0
            continue
        c.front_req = -1
        c.front = 0
        if kind == ev.ALLOCATED or kind == ev.HIT:
            take_block(s, c, req, group, b, turn)
            if kind == ev.HIT and req >= 0:
                s.lengths[np.int64(s.slot_of[req]) * s.sliding.size + group].stored += 1
            continue
        if kind == ev.RECYCLED:
            forget_key(s.blocks[b])
            s.blocks[b].evicted = turn
            take_block(s, c, req, group, b, turn)
            continue
        c.adopt_at = -1
        if kind == ev.EVICTED:
            forget_key(s.blocks[b])
            s.blocks[b].evicted = turn
            link_after(s.blocks, 0 if s.to_front[0] else s.blocks[0].prev, b)
            mark(c, s.blocks, s.changes, b, turn)
        elif kind == ev.ADOPTED:
            c.adopt_at = b
            c.adopt_table = table_of(s, c, req, group)
        elif kind == ev.STORE:
            t = table_of(s, c, req, group)
            c.store_at = s.lengths[t].stored
            s.lengths[t].stored = b
        elif kind == ev.STORED:
            t = table_of(s, c, req, group)
            while s.sliding[group] and s.tables[t, c.store_at] != b:
                c.store_at += 1
            block = s.blocks[b]
            block.key = keys[c.key]
            block.writer = req
            block.position = c.store_at
            s.group[b] = group
            c.key += 1
            c.store_at += 1
            mark(c, s.blocks, s.changes, b, turn)
        elif kind == ev.STORED_EXTRA or kind == ev.HOST_STORED:
            c.key += 1
        elif kind == ev.WRITTEN:
            t = table_of(s, c, req, group)
            for k in range(s.lengths[t].stored, b):
                s.blocks[s.tables[t, k]].key = np.uint64(1)
                mark(c, s.blocks, s.changes, np.int64(s.tables[t, k]), turn)
            s.lengths[t].stored = b
        elif kind == ev.SKIPPED:
            t = table_of(s, c, req, group)
            for _ in range(b):
                append(s, t, 0)
            s.lengths[t].stored = b
        elif kind == ev.TRIMMED:
            t = table_of(s, c, req, group)
            for k in range(b):
                s.tables[t, k] = 0
        elif kind == ev.CLEARED:
            for x in range(s.blocks.size):
                if s.blocks[x].key != 0:
                    forget_key(s.blocks[x])
                    s.blocks[x].evicted = turn
                    mark(c, s.blocks, s.changes, x, turn)
            if b == ev.AS_NEW:
                as_new(s, c, turn)
        elif kind == ev.PREEMPTED or kind == ev.FINISHED or kind == ev.ABORTED:
            drop_request(s, c, req)
