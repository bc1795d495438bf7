"""OffloadingConnector, scheduler side: copies that have ended, and the cleared tier (see native.py)."""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import ABORTED, FINISHED
from simkv.engine.offload.chunks import find_chunk
from simkv.engine.offload.compiled import splice
from simkv.engine.offload.fences import fence
from simkv.engine.offload.holding import forget_book
from simkv.engine.offload.host import chunk_written, clear, unpin_chunk
from simkv.engine.offload.layout import STORE
from simkv.engine.offload.native import key_of_chunk
from simkv.engine.offload.trace import T_ENDED, T_LOADED, T_RESET, T_STORED, note
from simkv.engine.vllm.pool import emit, emit_key
from simkv.events import layout as ev


@splice
def native_reset(h, n, e, cfg, c):
    """reset_cache(): every chunk is gone, copies under way are waited for and their ends ignored."""
    hc, bit = h.counters[0], 1 << c.batch
    j = np.int64(h.jobs[0].after)
    while j > 0:
        job = h.jobs[j]
        if job.stale == 0:
            job.flush |= bit
            job.stale = 1
        j = np.int64(job.after)
    for r in range(e.reqs.size):
        q = h.reqs[r]
        q.next_chunk = q.jobs = 0
        if q.gone == 0 and (e.reqs[r].status == FINISHED or e.reqs[r].status == ABORTED):
            if q.signaled == 0:
                note(h, T_ENDED)
                note(h, r)
            q.gone = 1
            forget_book(h, e, c, r)
    note(h, T_RESET)
    clear(n.chunks, h.config[0])
    for b in range(n.fences.size):
        n.fences[b] = 0
    hc.jobs = hc.fenced = 0
    hc.resets += 1
    if cfg.log:
        emit(c, e.log, ev.HOST_CLEARED, 0, -1, 0)


@splice
def store_done(h, n, e, cfg, c, j):
    """complete_store(): the chunks can be read from now on."""
    job, k = h.jobs[j], n.chunks
    note(h, T_STORED)
    note(h, job.req)
    note(h, job.chunks)
    if job.fenced > 0:
        fence(h, n, j, -1)
    x = np.int64(job.head)
    while x > 0:
        node = k.nodes[x]
        note(h, node.chunk)
        chunk_written(k, x)
        h.counters[0].stored += 1
        if cfg.log:
            emit(c, e.log, ev.HOST_STORED, 0, job.req, node.chunk)
            emit_key(c, e.log_keys, node.key)
        x = np.int64(node.job_next)


@splice
def load_done(h, n, e, j):
    """complete_load(): the chunks may be evicted again."""
    job = h.jobs[j]
    note(h, T_LOADED)
    note(h, job.req)
    note(h, job.first)
    note(h, job.stop)
    s = np.int64(h.reqs[job.req].slot)
    for i in range(job.first, job.stop):
        unpin_chunk(n.chunks, find_chunk(n.chunks, key_of_chunk(e, h, s, i)))


@splice
def native_completed(h, n, e, cfg, c, ended):
    """update_connector_output(): the jobs in ``h.done`` have ended."""
    hc = h.counters[0]
    for i in range(ended):
        j = np.int64(h.done[i])
        job = h.jobs[j]
        if job.stale:
            continue
        q = h.reqs[job.req]
        if job.direction == STORE:
            store_done(h, n, e, cfg, c, j)
        else:
            load_done(h, n, e, j)
        hc.jobs -= 1
        q.jobs -= 1
        if q.signaled and q.jobs == 0:
            q.gone = 1
