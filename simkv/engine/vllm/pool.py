"""The block pool: free queue, reference counts and the key table (vllm/v1/core/block_pool.py, 0.32.0).

The free queue is a circular linked list through ``blocks`` with block 0, the null block, as its sentinel: allocation
takes the head, and a block taken from there that still carries a key is evicted at that moment. Blocks with equal keys
are *twins* in order of registration; the table holds the oldest.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import KV_CLEARED, KV_REMOVED
from simkv.engine.vllm.compiled import entry, inline, kernel
from simkv.engine.vllm.kv_events import emit_kv
from simkv.events.layout import ALLOCATED, FREED_BACK, FREED_FRONT, HIT, KIND_BITS, RECYCLED, RELEASED, REMOVED_EXTRA
from simkv.jit import prefetch

U = np.uint64
HALF, LOW = U(32), U(0xFFFF_FFFF)
AHEAD = 8
"""Keys that are fetched before their turn."""


@inline
def write_row(c, log, kind, group, req, arg):
    event = log[c.logged_rows]
    event.req = req
    event.arg = arg
    event.kind = kind | (group << KIND_BITS)
    c.logged_rows += 1


@inline
def emit(c, log, kind, group, req, arg):
    """Append one event; the caller has checked ``config.log``, and the turn has reserved room."""
    write_row(c, log, kind, group, req, arg)
    c.events += 1


@inline
def emit_run(c, log, kind, group, req, count):
    """Append ``count`` events of one kind; their blocks are the last ``count`` of ``log_blocks``."""
    if count > 0:
        write_row(c, log, kind, group, req, count)
        c.events += count
        c.logged_blocks += count


@inline
def emit_key(c, log_keys, key):
    log_keys[c.logged_keys] = key
    c.logged_keys += 1


@inline
def unlink_free(blocks, b):
    block = blocks[b]
    blocks[block.free_prev].free_next = block.free_next
    blocks[block.free_next].free_prev = block.free_prev


@inline
def link_free_after(blocks, p, b):
    n = blocks[p].free_next
    block = blocks[b]
    block.free_prev = p
    block.free_next = n
    blocks[p].free_next = b
    blocks[n].free_prev = b


@inline
def entry_at(table, i):
    """Entry at a table position, 0 if it is empty. (Its upper half is the key's lower half: probes stay in the table.)"""
    return np.int64(table[i] & LOW)


@inline
def tagged(key, entry):
    return (key << HALF) | U(entry)


@inline
def fetch(table, key):
    """A key will soon be looked for: of many pools together, little is in the processor's caches."""
    prefetch(table.ctypes.data + 8 * np.int64(key & U(table.size - 1)))


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
    """Give an entry (a block, or an extra-key entry) its key, behind older twins. Whether there are none."""
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
    return oldest == 0


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
    """Take an entry's key from it. Whether no twin has it either."""
    record = blocks[entry]
    i = find_position(blocks, table, record.key)
    last = record.twin_next == entry
    if last:
        delete_position(table, i)
        c.cached -= 1
    else:
        blocks[record.twin_prev].twin_next = record.twin_next
        blocks[record.twin_next].twin_prev = record.twin_prev
        if entry_at(table, i) == entry:
            table[i] = tagged(record.key, record.twin_next)
    return last


@kernel
def evict_extras(e, cfg, c, req, group, b):
    """Drop a block's extra keys, in order of registration (hybrid models, rule 3.11)."""
    blocks = e.blocks
    x = blocks[b].keys
    while x > 1:
        following = blocks[x].free_next
        unregister(c, blocks, e.table, x)
        c.removed += 1
        if cfg.log:
            emit(c, e.log, REMOVED_EXTRA, group, req, b)
        blocks[x].free_next = np.int32(c.free_entries)
        c.free_entries = x
        x = following


@kernel
def allocate(e, cfg, c, req, group, row, first, count):
    """Pop ``count`` blocks from the head of the free queue into ``row[first:]``; a popped block that is cached is evicted."""
    blocks, at, tell = e.blocks, c.logged_blocks, cfg.kv_events > 0
    run, length = ALLOCATED, 0
    for k in range(first, first + count):
        b = blocks[0].free_next
        unlink_free(blocks, b)
        block = blocks[b]
        fetch(e.table, blocks[blocks[0].free_next].key)
        kind = ALLOCATED
        if block.keys > 0:
            kind = RECYCLED
            c.removed += 1
            last = unregister(c, blocks, e.table, b)
            if tell and last:
                emit_kv(e, c, KV_REMOVED, block.key)
        if cfg.log:
            if kind != run:
                emit_run(c, e.log, run, group, req, length)
                run, length = kind, 0
            e.log_blocks[at] = b
            at += 1
            length += 1
        if block.keys > 1:
            if cfg.log:
                emit_run(c, e.log, run, group, req, length)
                length = 0
            evict_extras(e, cfg, c, req, group, b)
        block.keys = 0
        block.ref = 1
        row[k] = b
    if cfg.log:
        emit_run(c, e.log, run, group, req, length)
    c.free -= count
    c.held += count


@kernel
def touch(e, cfg, c, req, group, row, first, stop):
    """Reference the hit blocks ``row[first:stop]``; an idle one leaves the free queue."""
    blocks, at = e.blocks, c.logged_blocks
    for k in range(first, stop):
        b = row[k]
        block = blocks[b]
        block.ref += 1
        if b == 0:
            continue
        if block.ref == 1:
            unlink_free(blocks, b)
            c.free -= 1
        c.held += 1
        if cfg.log:
            e.log_blocks[at] = b
            at += 1
    if cfg.log:
        emit_run(c, e.log, HIT, group, req, at - c.logged_blocks)


@kernel
def release(e, cfg, c, req, group, row, first, stop):
    """Drop the references of ``row[first:stop]`` from right to left.

    Blocks that reach zero: without a key to the head of the queue in the visited order, with a key to its tail. (Older
    engines append both: ``unhashed_to_front``.) The null block only counts down.
    """
    blocks, at = e.blocks, c.logged_blocks
    run, length = RELEASED, 0
    front = 0
    for k in range(stop - 1, first - 1, -1):
        b = row[k]
        block = blocks[b]
        block.ref -= 1
        if b == 0:
            continue
        c.held -= 1
        kind = RELEASED
        if block.ref == 0:
            if block.keys > 0 or not cfg.unhashed_to_front:
                link_free_after(blocks, blocks[0].free_prev, b)
                kind = FREED_BACK
            else:
                link_free_after(blocks, front, b)
                front = b
                kind = FREED_FRONT
            c.free += 1
        if cfg.log:
            if kind != run:
                emit_run(c, e.log, run, group, req, length)
                run, length = kind, 0
            e.log_blocks[at] = b
            at += 1
            length += 1
    if cfg.log:
        emit_run(c, e.log, run, group, req, length)


@kernel
def clear_keys(e, cfg, c):
    """Forget every key; the free queue keeps its order (BlockPool.reset_prefix_cache)."""
    for b in range(cfg.num_blocks):
        x = e.blocks[b].keys
        e.blocks[b].keys = 0
        while x > 1:
            following = e.blocks[x].free_next
            e.blocks[x].free_next = np.int32(c.free_entries)
            c.free_entries = x
            x = following
    for i in range(e.table.size):
        e.table[i] = 0
    c.cached = 0
    if cfg.kv_events:
        emit_kv(e, c, KV_CLEARED, U(0))


@entry
def free_order(blocks, out):
    """The free queue, head first, into ``out``; returns its length."""
    n = 0
    b = blocks[0].free_next
    while b != 0:
        out[n] = b
        n += 1
        b = blocks[b].free_next
    return n
