"""Prefix lookup: the longest cached prefix of a request, over one or several KV groups.

Sources: vllm/v1/core/single_type_kv_cache_manager.py and kv_cache_coordinator.py, 0.32.0. Full groups walk from block 0
to the first miss; sliding groups look from the right for the blocks one window needs; several kinds of groups shrink a
common limit until all agree. Block ids go to the head slot's table rows, which hold nothing else yet.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.compiled import inline, kernel
from simkv.engine.vllm.pool import AHEAD, entry_at, fetch, find_position


@inline
def cached_block(blocks, table, key):
    """Oldest block with this key, 0 if there is none."""
    return entry_at(table, find_position(blocks, table, key))


@inline
def kind_has(blocks, table, groups, key, first_group):
    """Whether every group of the kind holds the key."""
    g = first_group
    while g >= 0:
        if cached_block(blocks, table, key ^ groups[g].key) == 0:
            return False
        g = groups[g].next_in_kind
    return True


@kernel
def find_full(e, cfg, s, first_group, limit):
    """Full attention: tokens of the longest run from block 0, a multiple of the scheduler block."""
    group = e.groups[first_group]
    most = limit // group.block_size
    hit = 0
    if group.next_in_kind < 0:
        row = e.tables[s * cfg.num_groups + first_group]
        while hit < most:
            if hit + AHEAD < most:
                fetch(e.table, e.keys[s, (hit + AHEAD + 1) * group.stride - 1] ^ group.key)
            b = cached_block(e.blocks, e.table, e.keys[s, (hit + 1) * group.stride - 1] ^ group.key)
            if b == 0:
                break
            row[hit] = b
            hit += 1
    else:
        while hit < most and kind_has(e.blocks, e.table, e.groups, e.keys[s, (hit + 1) * group.stride - 1], first_group):
            g = first_group
            while g >= 0:
                e.tables[s * cfg.num_groups + g, hit] = cached_block(
                    e.blocks, e.table, e.keys[s, (hit + 1) * group.stride - 1] ^ e.groups[g].key
                )
                g = e.groups[g].next_in_kind
            hit += 1
    tokens = hit * group.block_size // cfg.scheduler_block * cfg.scheduler_block
    g = first_group
    while g >= 0:
        e.groups[g].hit_start = 0
        e.groups[g].hit_len = tokens // group.block_size
        g = e.groups[g].next_in_kind
    return tokens


@inline
def set_sliding_hit(groups, first_group, start, length):
    g = first_group
    while g >= 0:
        groups[g].hit_start = start
        groups[g].hit_len = length
        g = groups[g].next_in_kind


@kernel
def find_sliding(e, cfg, s, first_group, limit):
    """Sliding window: rightmost position whose window is cached. Entries left of the run are null (hit_start)."""
    group = e.groups[first_group]
    size = group.block_size
    run = 0
    i = limit // size - 1
    while i >= 0:
        key = e.keys[s, (i + 1) * group.stride - 1]
        if not kind_has(e.blocks, e.table, e.groups, key, first_group):
            run = 0
        elif run > 0 or (i + 1) * size % cfg.scheduler_block == 0:
            g = first_group
            while g >= 0:
                e.tables[s * cfg.num_groups + g, i] = cached_block(e.blocks, e.table, key ^ e.groups[g].key)
                g = e.groups[g].next_in_kind
            run += 1
            if run >= group.need:
                set_sliding_hit(e.groups, first_group, i, i + run)
                return (i + run) * size
        i -= 1
    while run * size % cfg.scheduler_block != 0:
        run -= 1
    set_sliding_hit(e.groups, first_group, 0, run)
    return run * size


@kernel
def find_hit(e, cfg, c, s, num_tokens):
    """Tokens of the request in slot ``s`` that are cached; per group ``hit_start`` and ``hit_len``.

    The last token is always computed, so at most ``num_tokens - 1`` count. ``c.junction`` becomes the longest length
    any kind found, if that is more than the hit (a prefix worth pinning in the sliding groups), else 0.
    """
    limit = num_tokens - 1
    c.junction = 0
    if cfg.num_groups == 1:
        if e.groups[0].window == 0:
            return find_full(e, cfg, s, 0, limit)
        return find_sliding(e, cfg, s, 0, limit)
    best = 0
    for k in range(cfg.num_kinds):
        e.groups[k].kind_found = -1
    while True:
        current = limit
        for k in range(cfg.num_kinds):
            kind = e.groups[k]
            if kind.kind_full and kind.kind_found >= 0:
                current = min(current, np.int64(kind.kind_found))
                continue
            first = np.int64(kind.kind_first)
            current = find_full(e, cfg, s, first, current) if kind.kind_full else find_sliding(e, cfg, s, first, current)
            kind.kind_found = current
            best = max(best, current)
        settled = current >= limit or (cfg.num_kinds == 2 and e.groups[0].kind_full == 1)
        limit = current
        if settled:
            break
    for g in range(cfg.num_groups):
        group = e.groups[g]
        if group.window == 0:
            group.hit_len = min(group.hit_len, (limit + group.block_size - 1) // group.block_size)
    if best > limit:
        c.junction = best
    return limit


@kernel
def no_hit(groups, cfg, c):
    """Caching off, or a request that does not read the cache."""
    c.junction = 0
    for g in range(cfg.num_groups):
        groups[g].hit_start = 0
        groups[g].hit_len = 0
    return 0
