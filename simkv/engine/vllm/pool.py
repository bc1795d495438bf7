"""The block pool: free queue, reference counts and the key table (vllm/v1/core/block_pool.py, 0.32.0).

Allocation takes the head of the free queue, and a block taken from there that still carries a key is evicted at that
moment. The queue is a ring of block ids: a hit takes its block out of the middle by forgetting the block's place, which
leaves a dead position to be skipped (a linked list, as in the engine, waits for memory at every step). Blocks with equal
keys are *twins* in order of registration; the table holds the oldest.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.compiled import entry, inline, kernel
from simkv.events.layout import (
    ALLOCATED,
    FREED_BACK,
    FREED_FRONT,
    HIT,
    KIND_BITS,
    RECYCLED,
    RELEASED,
    REMOVED_EXTRA,
)

U = np.uint64
HALF, LOW = U(32), U(0xFFFF_FFFF)


@inline
def emit(c, log, kind, group, req, arg):
    """Append one event; the caller has checked ``config.log`` and the turn has reserved room."""
    event = log[c.events]
    event.req = req
    event.arg = arg
    event.kind = kind | (group << KIND_BITS)
    c.events += 1


@inline
def emit_key(c, log_keys, key):
    log_keys[c.logged_keys] = key
    c.logged_keys += 1


@kernel
def compact_queue(blocks, ring, c):
    """Close the dead positions of the free queue, order kept."""
    mask = ring.size - 1
    end = c.free_head
    for p in range(c.free_head, c.free_tail):
        b = ring[p & mask]
        if blocks[b].place == p:
            ring[end & mask] = b
            blocks[b].place = end
            end += 1
    c.free_tail = end


@inline
def make_room(blocks, ring, c, count):
    """The ring holds every free block and as many dead positions; compact before it would wrap into itself."""
    if c.free_tail - c.free_head + count > ring.size:
        compact_queue(blocks, ring, c)


@inline
def entry_at(table, i):
    """Entry at a table position, 0 if it is empty. (Its upper half is the key's lower half: probes stay in the table.)"""
    return np.int64(table[i] & LOW)


@inline
def tagged(key, entry):
    return (key << HALF) | U(entry)


@inline
def find_position(blocks, table, key):
    """Table position that holds ``key``, or the empty position where it would go."""
    mask = table.size - 1
    i = np.int64(key & U(mask))
    while True:
        word = table[i]
        if word == 0 or (word >> HALF == key & LOW and blocks[np.int64(word & LOW)].key == key):
            return i
        i = (i + 1) & mask


@inline
def register(c, blocks, table, entry, key):
    """Give an entry (a block, or an extra-key entry) its key, behind older twins."""
    record = blocks[entry]
    record.key = key
    i = find_position(blocks, table, key)
    oldest = entry_at(table, i)
    if oldest == 0:
        table[i] = tagged(key, entry)
        record.twin_next = entry
        record.twin_prev = entry
        c.cached += 1
    else:
        newest = blocks[oldest].twin_prev
        blocks[newest].twin_next = entry
        blocks[oldest].twin_prev = entry
        record.twin_prev = newest
        record.twin_next = oldest


@inline
def delete_position(table, i):
    """Backward-shift deletion of linear probing."""
    mask = table.size - 1
    j = i
    while True:
        j = (j + 1) & mask
        word = table[j]
        if word == 0:
            break
        home = np.int64((word >> HALF) & U(mask))
        if ((j - home) & mask) >= ((j - i) & mask):
            table[i] = word
            i = j
    table[i] = 0


@inline
def unregister(c, blocks, table, entry):
    record = blocks[entry]
    i = find_position(blocks, table, record.key)
    if record.twin_next == entry:
        delete_position(table, i)
        c.cached -= 1
    else:
        blocks[record.twin_prev].twin_next = record.twin_next
        blocks[record.twin_next].twin_prev = record.twin_prev
        if entry_at(table, i) == entry:
            table[i] = tagged(record.key, record.twin_next)


@kernel
def evict_extras(e, cfg, c, req, group, b):
    """Drop a block's extra keys, in order of registration (hybrid models, rule 3.11)."""
    blocks = e.blocks
    x = blocks[b].keys
    while x > 1:
        following = blocks[x].place
        unregister(c, blocks, e.table, x)
        c.removed += 1
        if cfg.log:
            emit(c, e.log, REMOVED_EXTRA, group, req, b)
        blocks[x].place = c.free_entries
        c.free_entries = x
        x = following


@kernel
def allocate(e, cfg, c, req, group, row, first, count):
    """Pop ``count`` blocks from the head of the free queue into ``row[first:]``; a popped block that is cached is evicted."""
    blocks, ring = e.blocks, e.free_ring
    mask = ring.size - 1
    for k in range(first, first + count):
        b = ring[c.free_head & mask]
        while blocks[b].place != c.free_head:
            c.free_head += 1
            b = ring[c.free_head & mask]
        c.free_head += 1
        block = blocks[b]
        block.place = -1
        kind = ALLOCATED
        if block.keys > 0:
            kind = RECYCLED
            c.removed += 1
            unregister(c, blocks, e.table, b)
        if cfg.log:
            emit(c, e.log, kind, group, req, b)
        if block.keys > 1:
            evict_extras(e, cfg, c, req, group, b)
        block.keys = 0
        block.ref = 1
        row[k] = b
    c.free -= count
    c.held += count


@kernel
def touch(e, cfg, c, req, group, row, first, stop):
    """Reference the hit blocks ``row[first:stop]``; an idle one leaves the free queue."""
    blocks = e.blocks
    for k in range(first, stop):
        b = row[k]
        block = blocks[b]
        block.ref += 1
        if b == 0:
            continue
        if block.ref == 1:
            block.place = -1
            c.free -= 1
        c.held += 1
        if cfg.log:
            emit(c, e.log, HIT, group, req, b)


@kernel
def release(e, cfg, c, req, group, row, first, stop):
    """Drop the references of ``row[first:stop]`` from right to left.

    Blocks that reach zero: without a key to the head of the queue in the visited order, with a key to its tail. (Older
    engines append both: ``unhashed_to_front``.) The null block only counts down.
    """
    blocks, ring = e.blocks, e.free_ring
    mask = ring.size - 1
    make_room(blocks, ring, c, stop - first)
    to_front = 0
    for k in range(stop - 1, first - 1, -1):
        b = row[k]
        block = blocks[b]
        block.ref -= 1
        if b == 0:
            continue
        c.held -= 1
        kind = RELEASED
        if block.ref == 0:
            c.free += 1
            if block.keys > 0 or not cfg.unhashed_to_front:
                ring[c.free_tail & mask] = b
                block.place = c.free_tail
                c.free_tail += 1
                kind = FREED_BACK
            else:
                to_front += 1
                kind = FREED_FRONT
        if cfg.log:
            emit(c, e.log, kind, group, req, b)
    if to_front > 0:
        put_in_front(blocks, ring, c, row, first, stop, to_front)


@kernel
def put_in_front(blocks, ring, c, row, first, stop, count):
    """The ``count`` unkeyed blocks of a release go before the head, in the order they were visited."""
    mask = ring.size - 1
    c.free_head -= count
    p = c.free_head
    k = stop - 1
    while k >= first and p < c.free_head + count:
        b = row[k]
        if b != 0 and blocks[b].ref == 0 and blocks[b].place < 0:
            ring[p & mask] = b
            blocks[b].place = p
            p += 1
        k -= 1


@kernel
def clear_keys(e, cfg, c):
    """Forget every key; the free queue keeps its order (BlockPool.reset_prefix_cache)."""
    for b in range(cfg.num_blocks):
        x = e.blocks[b].keys
        e.blocks[b].keys = 0
        while x > 1:
            following = e.blocks[x].place
            e.blocks[x].place = c.free_entries
            c.free_entries = x
            x = following
    for i in range(e.table.size):
        e.table[i] = 0
    c.cached = 0


@entry
def free_order(blocks, ring, c, out):
    """The free queue, head first, into ``out``; returns its length."""
    n = 0
    for p in range(c.free_head, c.free_tail):
        b = ring[p & (ring.size - 1)]
        if blocks[b].place == p:
            out[n] = b
            n += 1
    return n
