"""The copy engine: two queues, host to device and back, each in order (v1/kv_offload and the connector's worker side, 0.32.0).

Stores of a step are handed to it at the start of the next, loads in the step itself. What has ended is noticed at the
end of a step.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.layout import COPYING, GIVEN, LOAD, NATIVE, SECONDS, STORE, SUBMIT
from simkv.engine.offload.trace import T_DONE, T_SUBMIT, T_WAIT, note


@inline
def push_job(h, q, j):
    h.jobs[j].next = 0
    if h.queues[q].head == 0:
        h.queues[q].head = j
    else:
        h.jobs[h.queues[q].tail].next = j
    h.queues[q].tail = j


@inline
def pop_job(h, q):
    j = h.queues[q].head
    h.queues[q].head = h.jobs[j].next
    return np.int64(j)


@kernel
def new_job(h, r, direction, batch, blocks):
    """A transfer of request ``r`` that batch ``batch`` orders."""
    hc = h.counters[0]
    hc.spare_jobs -= 1
    j = np.int64(h.spare_jobs[hc.spare_jobs])
    job = h.jobs[j]
    job.number = hc.job_number
    hc.job_number += 1
    job.req, job.direction, job.blocks = r, direction, blocks
    job.first = job.stop = job.head = job.chunks = job.flush = job.fenced = job.stale = 0
    last = h.jobs[0].before
    job.before, job.after = last, 0
    h.jobs[last].after = j
    h.jobs[0].before = j
    push_job(h, GIVEN + 2 * batch + direction, j)
    hc.jobs += 1
    return j


@inline
def free_job(h, j):
    job = h.jobs[j]
    h.jobs[job.before].after = job.after
    h.jobs[job.after].before = job.before
    hc = h.counters[0]
    h.spare_jobs[hc.spare_jobs] = j
    hc.spare_jobs += 1


@inline
def submit(h, j, t):
    """Queue a copy: it ends behind its predecessors of the same direction."""
    cf, hc, job = h.config[0], h.counters[0], h.jobs[j]
    store = job.direction == STORE
    if cf.mode == SECONDS:
        busy = max(t, hc.store_free if store else hc.load_free)
        took = cf.fixed_store_s + cf.block_store_s * job.blocks if store else cf.fixed_load_s + cf.block_load_s * job.blocks
        job.end = busy + took
        if store:
            hc.store_free = job.end
        else:
            hc.load_free = job.end
    else:
        job.end = t + (cf.latency_store if store else cf.latency_load)
    push_job(h, COPYING + job.direction, j)
    note(h, T_SUBMIT)
    note(h, job.direction)
    note(h, job.number)


@kernel
def wait_for(h, direction, bit, t):
    """Wait until the last flagged copy of this direction has ended. Returns when that is, at least ``t``."""
    cf = h.config[0]
    last, flagged = 0, 0
    j = h.queues[COPYING + direction].head
    while j > 0:
        if h.jobs[j].flush & bit:
            last = j
            flagged += 1
        j = h.jobs[j].next
    if last == 0:
        return t
    note(h, T_WAIT)
    note(h, direction)
    note(h, flagged)
    until = max(t, h.jobs[last].end) if cf.mode == SECONDS else t
    j = h.queues[COPYING + direction].head
    while True:
        job = h.jobs[j]
        job.end = min(job.end, until)
        if job.flush & bit:
            note(h, job.number)
            h.counters[0].flushed += 1
        if j == last:
            break
        j = job.next
    return until


@splice
def hand_over_stores(h, batch, bit, t):
    """Submit the stores of the step before, and of this one those that are waited for; keep the others back."""
    given, rest = GIVEN + 2 * batch + STORE, 0
    j = np.int64(h.queues[given].head)
    h.queues[given].head = 0
    while j > 0:
        following = np.int64(h.jobs[j].next)
        if h.jobs[j].flush & bit or h.config[0].connector != NATIVE:
            push_job(h, SUBMIT, j)
        else:
            push_job(h, given, j)
            rest += 1
        j = following
    while h.queues[SUBMIT].head > 0:
        submit(h, pop_job(h, SUBMIT), t)
    return rest


@splice
def copy_step(h, batch, start, end):
    """What the worker does in one step. Ended jobs are in ``h.done``, stores first.

    Args:
        start, end: of the step's forward pass, in seconds (mode SECONDS).

    Returns:
        ``(jobs that ended, seconds by which waiting delayed the step)``.
    """
    cf, hc = h.config[0], h.counters[0]
    timed = cf.mode == SECONDS
    t = start if timed else float(hc.worker_steps)
    bit = 1 << batch
    native = cf.connector == NATIVE
    waited = t
    if not native:
        waited = max(wait_for(h, STORE, bit, t), wait_for(h, LOAD, bit, t))
        while h.queues[GIVEN + 2 * batch + LOAD].head > 0:
            submit(h, pop_job(h, GIVEN + 2 * batch + LOAD), waited)
    hand_over_stores(h, batch, bit, waited)
    if native:
        waited = max(wait_for(h, STORE, bit, t), wait_for(h, LOAD, bit, t))
        while h.queues[GIVEN + 2 * batch + LOAD].head > 0:
            submit(h, pop_job(h, GIVEN + 2 * batch + LOAD), waited)
        while h.queues[GIVEN + 2 * batch + STORE].head > 0:
            push_job(h, SUBMIT, pop_job(h, GIVEN + 2 * batch + STORE))
    now = end + (waited - start) if timed else t
    ended = 0
    for direction in range(2):
        if not native:
            direction = 1 - direction
        while h.queues[COPYING + direction].head > 0 and h.jobs[h.queues[COPYING + direction].head].end <= now:
            h.done[ended] = pop_job(h, COPYING + direction)
            note(h, T_DONE)
            note(h, direction)
            note(h, h.jobs[h.done[ended]].number)
            ended += 1
    hc.worker_steps += 1
    delay = waited - start if timed else 0.0
    hc.waited += delay
    return ended, delay


@inline
def next_end(h):
    """When the next copy ends, infinity if none is under way."""
    t = np.inf
    for direction in range(2):
        j = h.queues[COPYING + direction].head
        if j > 0:
            t = min(t, h.jobs[j].end)
    return t
