"""allocate_slots(): room for the tokens of one request in every KV group, and what enters the prefix cache then.

Sources: vllm/v1/core/kv_cache_manager.py, kv_cache_coordinator.py, single_type_kv_cache_manager.py, 0.32.0. The order
within one call is the engine's: full-prompt gate, trim of what left the window (it stays done even if the fit test
fails), fit test, hits referenced, blocks popped, full blocks registered.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import KV_STORED
from simkv.engine.vllm.compiled import inline, kernel
from simkv.engine.vllm.kv_events import emit_kv
from simkv.engine.vllm.layout import DENSE
from simkv.engine.vllm.pool import AHEAD, allocate, emit, emit_key, emit_run, fetch, register, release, touch
from simkv.events.layout import SKIPPED, STORE, STORED, STORED_EXTRA, TRIMMED


@inline
def ceil_div(a, b):
    return (a + b - 1) // b


@inline
def skipped_blocks(group, computed):
    """Whole blocks of a group that no later token attends to once ``computed`` tokens are computed."""
    if group.window == 0:
        return 0
    return max(0, computed - group.window + 1) // group.block_size


@kernel
def demand_of_admission(groups, blocks, tables, cfg, s, computed, num_tokens, gate):
    """Blocks that leave the free queue if the request in slot ``s`` gets room for ``num_tokens`` with its hits.

    Blocks to pop plus hit blocks that nobody references. ``gate`` caps a sliding group's need (admission gate only).
    """
    total = 0
    for g in range(cfg.num_groups):
        group = groups[g]
        need = ceil_div(num_tokens, group.block_size)
        if gate and group.gate_cap > 0:
            need = min(need, group.gate_cap)
        skip = skipped_blocks(group, computed)
        total += max(need - max(skip, group.hit_len), 0)
        row = tables[s * cfg.num_groups + g]
        for k in range(max(skip, group.hit_start), group.hit_len):
            b = row[k]
            total += b != 0 and blocks[b].ref == 0
    return total


@inline
def demand_of_growth(groups, lengths, cfg, s, computed, num_tokens):
    """The same for a running request, which has no hits."""
    total = 0
    for g in range(cfg.num_groups):
        group = groups[g]
        held = lengths[s * cfg.num_groups + g].length
        total += max(ceil_div(num_tokens, group.block_size) - max(skipped_blocks(group, computed), held), 0)
    return total


@kernel
def trim(e, cfg, c, s, settled):
    """Release blocks left of the window, right to left, once ``settled`` tokens are surely computed."""
    for g in range(cfg.num_groups):
        group = e.groups[g]
        if group.window == 0:
            continue
        at = e.lengths[s * cfg.num_groups + g]
        gone = min(skipped_blocks(group, settled), at.length)
        if gone > at.trimmed:
            row = e.tables[s * cfg.num_groups + g]
            first = np.int64(at.trimmed)
            release(e, cfg, c, e.slots[s].req, g, row, first, np.int64(gone))
            if cfg.log:  # behind its rows: it parts them from a preemption's that may follow
                emit(c, e.log, TRIMMED, g, e.slots[s].req, gone)
            for k in range(first, gone):
                row[k] = 0
            at.trimmed = gone


@inline
def keeps(cfg, group, i, num_prompt, junction):
    """Whether a sliding group's full block ``i`` is worth a key (reachable at a later resume)."""
    size, align = group.block_size, cfg.scheduler_block
    segment = align if cfg.retention == DENSE else cfg.retention
    if segment > 0:
        per = segment // size
        if group.need >= per or i % per >= per - group.need:
            return True
    if cfg.retention != DENSE:
        end = (num_prompt - 1) // align * align // size
        if end - group.need <= i < end:
            return True
        if junction > 0:
            end = junction // align * align // size
            if end - group.need <= i < end:
                return True
    return False


@kernel
def store_extra(e, cfg, c, s, g, known):
    """Second key for the last hash boundary of the prompt, where it lies inside a bigger block (rule 3.9)."""
    slot, group = e.slots[s], e.groups[g]
    boundary = (slot.num_prompt - 1) // cfg.hash_block * cfg.hash_block
    if boundary <= 0 or boundary > known or boundary % group.block_size == 0:
        return
    i = boundary // group.block_size
    if i >= e.lengths[s * cfg.num_groups + g].length:
        return
    b = e.tables[s * cfg.num_groups + g, i]
    key = e.keys[s, boundary // cfg.hash_block - 1] ^ group.key
    last = 0
    x = e.blocks[b].keys
    while x > 1:
        if e.blocks[x].key == key:
            return
        last = x
        x = e.blocks[x].free_next
    x = c.free_entries
    c.free_entries = e.blocks[x].free_next
    e.blocks[x].ref = b
    e.blocks[x].free_next = 0
    if last == 0:
        e.blocks[b].keys = x
    else:
        e.blocks[last].free_next = x
    register(c, e.blocks, e.table, x, key)
    c.stored += 1
    if cfg.log:
        emit(c, e.log, STORED_EXTRA, g, slot.req, b)
        emit_key(c, e.log_keys, key)


@kernel
def store_full_blocks(e, cfg, c, s, known):
    """Register the request's full blocks up to ``known`` tokens (BlockPool.cache_full_blocks)."""
    slot, tell = e.slots[s], cfg.kv_events > 0
    if cfg.num_groups > 1:
        known = known // cfg.scheduler_block * cfg.scheduler_block
    for g in range(cfg.num_groups):
        group = e.groups[g]
        at = e.lengths[s * cfg.num_groups + g]
        full = known // group.block_size
        if full > at.cached:
            row = e.tables[s * cfg.num_groups + g]
            if cfg.log:
                emit(c, e.log, STORE, g, slot.req, full)
            at_block, at_key = c.logged_blocks, c.logged_keys
            for i in range(at.cached, full):
                if i + AHEAD < full:
                    fetch(e.table, e.keys[s, (i + AHEAD + 1) * group.stride - 1] ^ group.key)
                b = row[i]
                if group.window > 0 and (b == 0 or not keeps(cfg, group, i, slot.num_prompt, slot.junction)):
                    continue
                key = e.keys[s, (i + 1) * group.stride - 1] ^ group.key
                first = register(c, e.blocks, e.table, b, key)
                if tell and first:
                    emit_kv(e, c, KV_STORED, key)
                e.blocks[b].keys = 1
                c.stored += 1
                if cfg.log:
                    e.log_blocks[at_block] = b
                    e.log_keys[at_key] = key
                    at_block += 1
                    at_key += 1
            if cfg.log:
                c.logged_keys = at_key
                emit_run(c, e.log, STORED, g, slot.req, at_block - c.logged_blocks)
            at.cached = full
        if group.extra:
            store_extra(e, cfg, c, s, g, known)


@kernel
def set_quiet(groups, lengths, slots, cfg, s):
    """Below how many computed + new tokens nothing can change for this request (a lower bound)."""
    store_at = cfg.max_model_len * 2
    quiet = store_at
    for g in range(cfg.num_groups):
        group = groups[g]
        at = lengths[s * cfg.num_groups + g]
        quiet = min(quiet, at.length * group.block_size + 1)
        if group.window > 0:
            quiet = min(quiet, (at.trimmed + 1) * group.block_size + group.window - 1)
        store_at = min(store_at, (at.cached + 1) * group.block_size)
    slots[s].store_at = store_at
    slots[s].quiet = min(quiet, store_at) if cfg.caching else quiet


@kernel
def pop_and_store(e, cfg, c, s, computed, new):
    """Second half of both ways in: pop what is missing up to computed + new tokens, then register."""
    slot = e.slots[s]
    total = min(computed + new, cfg.max_model_len)
    for g in range(cfg.num_groups):
        at = e.lengths[s * cfg.num_groups + g]
        missing = ceil_div(total, e.groups[g].block_size) - at.length
        if missing > 0:
            allocate(e, cfg, c, slot.req, g, e.tables[s * cfg.num_groups + g], at.length, missing)
            at.length += missing
    if cfg.caching:
        store_full_blocks(e, cfg, c, s, min(computed + new, slot.num_tokens))
    set_quiet(e.groups, e.lengths, e.slots, cfg, s)


@inline
def grow(e, cfg, c, s, new):
    """Room for ``new`` more tokens of a running request; False if the pool has none."""
    slot = e.slots[s]
    if slot.computed + new < slot.quiet:
        return True
    return grow_blocks(e, cfg, c, s, new)


@kernel
def grow_blocks(e, cfg, c, s, new):
    slot = e.slots[s]
    trim(e, cfg, c, s, max(0, slot.computed - slot.in_flight))
    if demand_of_growth(e.groups, e.lengths, cfg, s, slot.computed, min(slot.computed + new, cfg.max_model_len)) > c.free:
        return False
    pop_and_store(e, cfg, c, s, np.int64(slot.computed), new)
    return True


@kernel
def admit_blocks(e, cfg, c, s, hit, new):
    """Room for the request in slot ``s`` with ``hit`` cached tokens and ``new`` to compute; False if it does not fit."""
    slot = e.slots[s]
    watermark = cfg.watermark if c.running > 0 else 0
    if cfg.reserve_full_isl:
        whole = min(slot.num_tokens, cfg.max_model_len)
        if demand_of_admission(e.groups, e.blocks, e.tables, cfg, s, hit, whole, True) + watermark > c.free:
            return False
    if demand_of_admission(e.groups, e.blocks, e.tables, cfg, s, hit, min(hit + new, cfg.max_model_len), False) + watermark > c.free:
        return False
    for g in range(cfg.num_groups):
        at = e.lengths[s * cfg.num_groups + g]
        at.length = at.cached = at.trimmed = 0
        if hit > 0:
            group = e.groups[g]
            skip = skipped_blocks(group, hit)
            row = e.tables[s * cfg.num_groups + g]
            for k in range(min(skip, group.hit_len)):
                row[k] = 0
            for k in range(skip, group.hit_start):
                row[k] = 0
            if cfg.log and skip > 0:
                emit(c, e.log, SKIPPED, g, slot.req, skip)
            touch(e, cfg, c, slot.req, g, row, skip, group.hit_len)
            at.length = at.cached = max(skip, group.hit_len)
            at.trimmed = max(skip, group.hit_start)
    pop_and_store(e, cfg, c, s, hit, new)
    return True


@kernel
def release_all(e, cfg, c, s):
    """Finish, preemption, abort: per group one release call, table right to left."""
    req = e.slots[s].req
    for g in range(cfg.num_groups):
        at = e.lengths[s * cfg.num_groups + g]
        release(e, cfg, c, req, g, e.tables[s * cfg.num_groups + g], np.int64(0), np.int64(at.length))
        at.length = at.cached = at.trimmed = 0
