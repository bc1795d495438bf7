"""Device blocks are not pinned while a store reads them: whoever gets one of them meanwhile waits for the store.

vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py, 0.32.0.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.compiled import kernel, splice
from simkv.engine.offload.layout import GIVEN, LOAD, STORE
from simkv.engine.vllm.layout import CONTINUED


@kernel
def fence(h, n, j, by):
    """Watch (1) or stop watching (-1) the device blocks a store reads."""
    job, k, size = h.jobs[j], n.chunks, h.config[0].blocks_per_chunk
    x = np.int64(job.head)
    while x > 0:
        chunk = k.nodes[x].chunk
        for i in range(chunk * size, (chunk + 1) * size):
            n.fences[n.sources[i]] += by
        x = k.nodes[x].job_next
    job.fenced += by
    h.counters[0].fenced += by


@splice
def native_ended(h, n, r):
    """request_finished(): from now on the blocks its stores read may be handed out, so they are watched."""
    if h.reqs[r].jobs == 0:
        return
    j = np.int64(h.jobs[0].after)
    while j > 0:
        job = h.jobs[j]
        if job.req == r and job.stale == 0 and job.direction == STORE:
            fence(h, n, j, 1)
        j = np.int64(job.after)


@splice
def flush_victims(h, c):
    """Stores of preempted requests are waited for. A load among them is what the engine dies of."""
    hc, bit = h.counters[0], 1 << c.batch
    for v in range(hc.victims):
        r = h.victims[v]
        if h.reqs[r].jobs == 0:
            continue
        j = np.int64(h.jobs[0].after)
        while j > 0:
            job = h.jobs[j]
            if job.req == r and job.stale == 0:
                if job.direction == LOAD:
                    hc.crashed = 1
                job.flush |= bit
            j = np.int64(job.after)


@splice
def mark_handed_out(h, n, e, cfg, c, rows, stamp):
    """Mark the blocks that this step gave to somebody. Returns whether one of them is watched."""
    watched = False
    for i in range(c.rows):
        s = np.int64(rows[i].slot)
        first = np.int64(h.books[s].length) if rows[i].kind == CONTINUED else 0
        for k in range(first, e.lengths[s].length):
            b = e.tables[s, k]
            n.marks[b] = stamp
            watched = watched or n.fences[b] > 0
    j = np.int64(h.queues[GIVEN + 2 * c.batch + LOAD].head)
    while j > 0:
        s = np.int64(h.reqs[h.jobs[j].req].slot)
        for k in range(e.lengths[s].length):
            b = e.tables[s, k]
            n.marks[b] = stamp
            watched = watched or n.fences[b] > 0
        j = np.int64(h.jobs[j].next)
    return watched


@kernel
def reads_marked(h, n, j, stamp):
    """Whether a store reads a block that this step gave away."""
    k, size = n.chunks, h.config[0].blocks_per_chunk
    x = np.int64(h.jobs[j].head)
    while x > 0:
        chunk = k.nodes[x].chunk
        for i in range(chunk * size, (chunk + 1) * size):
            if n.marks[n.sources[i]] == stamp:
                return True
        x = np.int64(k.nodes[x].job_next)
    return False
