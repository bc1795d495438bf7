"""SimpleCPUOffloadConnector: which device blocks a step stores (see simple.py)."""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.host_blocks import find_host, take_host
from simkv.engine.offload.layout import LAZY
from simkv.engine.vllm.layout import NEW
from simkv.engine.vllm.pool import touch


@inline
def worth_storing(m, e, b):
    """Device block with a key, not being stored, not in host memory."""
    block = e.blocks[b]
    return block.keys > 0 and m.storing[b] == 0 and find_host(m, block.key) == 0


@kernel
def add_to_store(h, m, e, cfg, c, count, r):
    """``count`` device blocks in ``m.chosen`` become a part of the store in the making. ``r``: whose, or -1."""
    pool = m.pool[0]
    touch(e, cfg, c, -1, 0, m.chosen, 0, count)
    for i in range(count):
        b = take_host(h, m, e, cfg, c)
        m.source[b] = m.chosen[i]
        m.behind[b] = 0
        m.owner[b] = r if i == 0 else -1
        m.storing[m.chosen[i]] = h.config[0].connector != LAZY
        if pool.chain_head == 0:
            pool.chain_head = b
        else:
            m.behind[pool.chain_tail] = b
        pool.chain_tail = b
    pool.chain_len += count
    pool.pending_blocks += count


@kernel
def select_eager(h, m, e, cfg, c, s, r, blocks, confirmed):
    """Store the request's new full blocks among its first ``blocks``. Returns how far it looked; the pool may end it early."""
    q, room = h.reqs[r], m.pool[0].free
    if room == 0:
        return 0, 0
    looked, count = 0, 0
    for i in range(q.store_from, min(blocks, confirmed // cfg.hash_block)):
        b = e.tables[s, i]
        if worth_storing(m, e, b):
            if count >= room:
                break
            m.chosen[count] = b
            count += 1
        looked += 1
    return looked, count


@kernel
def store_eager(h, m, e, cfg, c, rows, new):
    """What the scheduled requests store, those admitted first (``new``) before the others."""
    for i in range(c.rows):
        if (rows[i].kind == NEW) != new:
            continue
        s, r = np.int64(rows[i].slot), np.int64(rows[i].req)
        q = h.reqs[r]
        if q.known == 0 or q.gone:
            continue
        confirmed = np.int64(rows[i].computed) - e.slots[s].placeholders
        looked, count = select_eager(h, m, e, cfg, c, s, r, np.int64(e.lengths[s].length), confirmed)
        if count > 0:
            add_to_store(h, m, e, cfg, c, count, r)
            q.store_events += 1
        q.store_from += looked


@splice
def store_lazy(h, m, e, cfg, c):
    """Walk on along the device's free queue and store what host memory does not have."""
    pool, count, seen = m.pool[0], 0, 0
    b = np.int64(e.blocks[0].free_next)
    if pool.cursor > 0 and e.blocks[pool.cursor].ref == 0:
        b = np.int64(e.blocks[pool.cursor].free_next)
    else:
        pool.cursor = -1
    room = pool.free
    while b != 0 and seen < h.config[0].lookahead and count < room:
        pool.cursor = b
        if e.blocks[b].keys > 0 and find_host(m, e.blocks[b].key) == 0:
            m.chosen[count] = b
            count += 1
        seen += 1
        b = np.int64(e.blocks[b].free_next)
    if count > 0:
        add_to_store(h, m, e, cfg, c, count, -1)
