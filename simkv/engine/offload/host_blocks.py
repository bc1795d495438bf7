"""The simple connector's host pool: a free queue of blocks in order of last release, as on the device.

Differs from the device's pool (simkv/engine/vllm/pool.py) only in what it writes to the log. Block 0 is the queue's
sentinel and never used.
"""

from __future__ import annotations

from simkv.engine.offload.compiled import inline, splice
from simkv.engine.vllm.pool import emit, emit_key, entry_at, find_position, link_free_after, register, unlink_free, unregister
from simkv.events import layout as ev


@inline
def find_host(m, key):
    """Oldest host block with this key, 0 if there is none."""
    return entry_at(m.table, find_position(m.blocks, m.table, key))


@splice
def pin_host(m, b):
    block = m.blocks[b]
    if block.ref == 0:
        unlink_free(m.blocks, b)
        m.pool[0].free -= 1
    block.ref += 1


@inline
def unpin_host(m, b, front):
    """Drop a reference. Returns behind which block the next one without a key goes, if one call frees several."""
    block = m.blocks[b]
    block.ref -= 1
    if block.ref > 0:
        return front
    m.pool[0].free += 1
    if block.keys > 0:
        link_free_after(m.blocks, m.blocks[0].free_prev, b)
        return front
    m.pool[0].occupied -= 1
    link_free_after(m.blocks, front, b)
    return b


@splice
def take_host(h, m, e, cfg, c):
    """The least recently released block, without what it held."""
    b = m.blocks[0].free_next
    unlink_free(m.blocks, b)
    m.pool[0].free -= 1
    block = m.blocks[b]
    if block.keys > 0:
        unregister(m.pool[0], m.blocks, m.table, b)
        block.keys = 0
        h.counters[0].removed += 1
        if cfg.log:
            emit(c, e.log, ev.HOST_REMOVED, 0, -1, b)
    else:
        m.pool[0].occupied += 1
    block.ref = 1
    return b


@splice
def name_host(h, m, e, cfg, c, b, key):
    """A written block can be found from now on."""
    register(m.pool[0], m.blocks, m.table, b, key)
    m.blocks[b].keys = 1
    h.counters[0].stored += 1
    if cfg.log:
        emit(c, e.log, ev.HOST_STORED, 0, -1, b)
        emit_key(c, e.log_keys, key)


@splice
def forget_host(m):
    """All keys go; the queue keeps its order."""
    for b in range(m.blocks.size):
        m.blocks[b].keys = 0
    for i in range(m.table.size):
        m.table[i] = 0
    m.pool[0].cached = 0
    m.pool[0].occupied = 0
