"""The block manager: two free stacks, reference counts, copy-on-write, swapping (vllm/core/block_manager.py, 0.2.7).

V0 counts blocks from 0 and takes the highest number first; block ``b`` here is V0's block ``N - 1 - b``, so that the pool
hands out 1, 2, 3, …. V0 frees the blocks of a sequence in the order of a Python set, which depends on addresses; here
they go back in the order of the table, the last one ends on top.
"""

from __future__ import annotations

from simkv.engine.vllm.pool import emit, emit_run
from simkv.engine.vllm_v0.compiled import inline, kernel
from simkv.events.layout import ADOPTED, ALLOCATED, COPIED, FREED_FRONT, HIT, RELEASED


@inline
def ceil_div(a, b):
    return (a + b - 1) // b


@inline
def take(e, c):
    """The block on top of the stack, with one reference. The caller has checked that there is one."""
    c.free -= 1
    b = e.free[c.free]
    e.ref[b] = 1
    return b


@inline
def drop(e, c, b):
    e.ref[b] -= 1
    if e.ref[b] == 0:
        e.free[c.free] = b
        c.free += 1


@inline
def take_cpu(e, c):
    c.cpu_free -= 1
    b = e.cpu_free[c.cpu_free]
    e.cpu_ref[b] = 1
    return b


@inline
def drop_cpu(e, c, b):
    e.cpu_ref[b] -= 1
    if e.cpu_ref[b] == 0:
        e.cpu_free[c.cpu_free] = b
        c.cpu_free += 1


@inline
def log_block(e, cfg, c, kind, lane, req, b):
    if cfg.log:
        e.log_blocks[c.logged_blocks] = b
        emit_run(c, e.log, kind, lane, req, 1)


@kernel
def log_release(e, c, lane, req, row, length):
    """Rows of a table whose references have been dropped, right to left: the top of the stack first."""
    at = c.logged_blocks
    run, n = RELEASED, 0
    for k in range(length - 1, -1, -1):
        b = row[k]
        kind = FREED_FRONT if e.ref[b] == 0 else RELEASED
        if kind != run:
            emit_run(c, e.log, run, lane, req, n)
            run, n = kind, 0
        e.log_blocks[at] = b
        at += 1
        n += 1
    emit_run(c, e.log, run, lane, req, n)


@kernel
def free_lane(e, cfg, c, s, lane):
    """Drop the references of one sequence."""
    slot = e.slots[s]
    row = e.tables[s * cfg.width + lane]
    for k in range(slot.length):
        drop(e, c, row[k])
    c.held -= slot.length
    if cfg.log:
        log_release(e, c, lane, slot.req, row, slot.length)


@kernel
def fork_lane(e, cfg, c, s, parent, child):
    """The child's table is the parent's; no block is taken."""
    slot = e.slots[s]
    source, row = e.tables[s * cfg.width + parent], e.tables[s * cfg.width + child]
    for k in range(slot.length):
        row[k] = source[k]
        e.ref[row[k]] += 1
    c.held += slot.length
    c.forks += 1
    if cfg.log:
        emit(c, e.log, ADOPTED, child, slot.req, 0)
        for k in range(slot.length):
            e.log_blocks[c.logged_blocks + k] = row[k]
        emit_run(c, e.log, HIT, child, slot.req, slot.length)


@kernel
def allocate_prompt(e, cfg, c, s):
    """Blocks for all tokens of a group that has one sequence, in lane 0."""
    slot = e.slots[s]
    slot.length = ceil_div(slot.num_tokens, cfg.block_size)
    row = e.tables[s * cfg.width]
    for k in range(slot.length):
        row[k] = take(e, c)
        if cfg.log:
            e.log_blocks[c.logged_blocks + k] = row[k]
    c.held += slot.length
    if cfg.log:
        emit_run(c, e.log, ALLOCATED, 0, slot.req, slot.length)


@kernel
def append_slots(e, cfg, c, s):
    """Room for the newest token of every sequence: a new block, or a copy of the last one if others share it."""
    slot = e.slots[s]
    grows = ceil_div(slot.num_tokens, cfg.block_size) > slot.length
    last = slot.length - 1
    for i in range(slot.num_seqs):
        lane = e.order[s, i]
        row = e.tables[s * cfg.width + lane]
        if grows:
            row[last + 1] = take(e, c)
            log_block(e, cfg, c, ALLOCATED, lane, slot.req, row[last + 1])
            continue
        shared = row[last]
        if e.ref[shared] == 1:
            continue
        row[last] = take(e, c)
        drop(e, c, shared)
        c.copies += 1
        if cfg.log:
            emit(c, e.log, ADOPTED, lane, slot.req, last)
            log_block(e, cfg, c, ALLOCATED, lane, slot.req, row[last])
            emit(c, e.log, COPIED, lane, slot.req, row[last])
            log_block(e, cfg, c, RELEASED, lane, slot.req, shared)
    if grows:
        slot.length += 1
        c.held += slot.num_seqs


@kernel
def distinct_blocks(e, cfg, c, s):
    """Blocks a group holds, shared ones counted once; on the GPU or in host memory."""
    slot = e.slots[s]
    c.stamp += 1
    n = 0
    for i in range(slot.num_seqs):
        row = e.tables[s * cfg.width + e.order[s, i]]
        for k in range(slot.length):
            n += e.moved_in[row[k]] != c.stamp
            e.moved_in[row[k]] = c.stamp
    return n


@kernel
def swap_out(e, cfg, c, s):
    """Move a group to host memory, sharing kept. The caller has checked that it fits."""
    slot = e.slots[s]
    c.stamp += 1
    for i in range(slot.num_seqs):
        lane = e.order[s, i]
        row = e.tables[s * cfg.width + lane]
        for k in range(slot.length):
            b = row[k]
            if e.moved_in[b] != c.stamp:
                e.moved_in[b] = c.stamp
                e.moved_to[b] = take_cpu(e, c)
                c.swapped_out += 1
                c.swap_moved += 1
            else:
                e.cpu_ref[e.moved_to[b]] += 1
            drop(e, c, b)
        if cfg.log:
            log_release(e, c, lane, slot.req, row, slot.length)
        for k in range(slot.length):
            row[k] = e.moved_to[row[k]]
    c.held -= slot.length * slot.num_seqs
    c.cpu_held += slot.length * slot.num_seqs


@kernel
def swap_in(e, cfg, c, s):
    """Bring a group back, sharing kept. The caller has checked that it fits."""
    slot = e.slots[s]
    c.stamp += 1
    for i in range(slot.num_seqs):
        lane = e.order[s, i]
        row = e.tables[s * cfg.width + lane]
        for k in range(slot.length):
            away = row[k]
            if e.moved_in[away] != c.stamp:
                e.moved_in[away] = c.stamp
                e.moved_to[away] = take(e, c)
                c.swapped_in += 1
                c.swap_moved += 1
                log_block(e, cfg, c, ALLOCATED, lane, slot.req, e.moved_to[away])
            else:
                e.ref[e.moved_to[away]] += 1
                log_block(e, cfg, c, HIT, lane, slot.req, e.moved_to[away])
            row[k] = e.moved_to[away]
            drop_cpu(e, c, away)
    c.held += slot.length * slot.num_seqs
    c.cpu_held -= slot.length * slot.num_seqs


@kernel
def free_group(e, cfg, c, s):
    """Drop everything a group on the GPU holds, sequence by sequence."""
    for i in range(e.slots[s].num_seqs):
        free_lane(e, cfg, c, s, e.order[s, i])


@kernel
def free_swapped(e, cfg, c, s):
    """The same for a group in host memory."""
    slot = e.slots[s]
    for i in range(slot.num_seqs):
        row = e.tables[s * cfg.width + e.order[s, i]]
        for k in range(slot.length):
            drop_cpu(e, c, row[k])
    c.cpu_held -= slot.length * slot.num_seqs
