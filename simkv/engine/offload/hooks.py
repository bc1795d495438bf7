"""The points at which the scheduler asks the host tier. Without one (``host`` is None) they are compiled away.

``plain`` is None where there is a host tier: what only replays without one do is then compiled away.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import FINISHED
from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.connector import build_transfers, clear_host, tell_ended, transfers_done, transfers_pending
from simkv.engine.offload.holding import arrived, drop_held, leave_slot, may_free, remove_held, settle_step
from simkv.engine.offload.layout import LOAD, LOADING, NOT_LOADING, SECONDS, SUBMIT
from simkv.engine.offload.trace import T_RECEIVED, note
from simkv.engine.offload.worker import copy_step, free_job, next_end
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.slots import release_all
from simkv.events import layout as ev


@inline
def may_preempt(host, e, s):
    """A victim whose blocks would not come back at once is of no use."""
    if host is None:
        return True
    return may_free(host, e.slots[s].req)


@kernel
def leave(host, plain, e, cfg, c, s, r):
    """A running request gives up its blocks and its slot."""
    if plain is not None:
        release_all(e, cfg, c, s)
        e.free_slots[c.free_slots] = s
        c.free_slots += 1
    if host is not None:
        leave_slot(host, e, cfg, c, s, r)


@inline
def was_preempted(host, r):
    if host is None:
        return
    host.reqs[r].prefilling = 0
    host.victims[host.counters[0].victims] = r
    host.counters[0].victims += 1


@kernel
def ends(host, native, simple, e, cfg, c, r):
    """A request ends: before its blocks go. One that is not running leaves the holding queue, if it is there."""
    if host is None:
        return
    q, req, hc = host.reqs[r], e.reqs[r], host.counters[0]
    q.prefilling = 0
    q.end_tokens = max(req.num_prompt, req.num_prompt + req.generated - 1)
    if req.status != FINISHED:
        q.end_tokens = e.slots[req.slot].computed if req.slot >= 0 else 0
    tell_ended(native, simple, host, e, cfg, c, r)
    host.ended[hc.ended] = r
    hc.ended += 1
    if q.slot >= 0:
        remove_held(host, r)
        if q.loading == LOADING:
            q.loading = NOT_LOADING
            hc.delayed += 1
        else:
            drop_held(host, e, cfg, c, r)


@kernel
def close_schedule(host, native, simple, e, cfg, c, rows):
    """At the end of schedule(), before the scheduled tokens count as computed."""
    if host is None:
        return
    hc = host.counters[0]
    build_transfers(native, simple, host, e, cfg, c, rows)
    hc.ended = hc.victims = 0
    if c.rows > 0:
        hc.scheduled += 1
    for i in range(c.rows):
        row = rows[i]
        slot, q = e.slots[row.slot], host.reqs[row.req]
        q.last_step = hc.scheduled
        if row.computed + row.n >= slot.num_tokens + slot.placeholders:
            q.prefilling = 0


@kernel
def before_output(host, e, cfg, c, b):
    """The worker's side of a step, and what its output settles. Returns how many copies ended."""
    if host is None:
        return 0
    batch = e.batches[b]
    ended, delay = copy_step(host, b, batch.start, batch.end)
    if host.config[0].mode == SECONDS:
        batch.end += delay
        c.device_free += delay
        c.now = max(c.now, batch.end)
        if c.in_flight > 0:
            e.batches[1 - b].start += delay
            e.batches[1 - b].end += delay
    if host.config[0].defer and batch.rows > 0:
        settle_step(host, e, cfg, c)
    return ended


@kernel
def after_output(host, native, simple, e, cfg, c, ended):
    """Copies that ended with a step reach the scheduler; their jobs are forgotten."""
    if host is None or ended == 0:
        return
    transfers_done(native, simple, host, e, cfg, c, ended)
    loads = 0
    for i in range(ended):
        j = np.int64(host.done[i])
        free_job(host, j)
        if host.jobs[j].direction == LOAD:
            host.done[loads] = j
            loads += 1
    if loads > 0:
        receive(native, simple, host, e, cfg, c, loads)


@splice
def receive(native, simple, h, e, cfg, c, loads):
    """Requests whose loads have ended, in order of their names (simple connector: in order of their jobs)."""
    if simple is not None:
        for i in range(loads):
            r = np.int64(h.jobs[h.done[i]].req)
            while r >= 0:
                following = np.int64(h.reqs[r].load_next)
                receive_one(h, e, cfg, c, r, np.int64(h.reqs[r].load_blocks))
                h.reqs[r].load_blocks = 0
                r = following
    if native is not None:
        for i in range(1, loads):
            j, k = h.done[i], i
            while k > 0 and e.reqs[h.jobs[j].req].name_rank < e.reqs[h.jobs[h.done[k - 1]].req].name_rank:
                h.done[k] = h.done[k - 1]
                k -= 1
            h.done[k] = j
        for i in range(loads):
            job = h.jobs[h.done[i]]
            receive_one(h, e, cfg, c, np.int64(job.req), np.int64(job.blocks))


@kernel
def receive_one(h, e, cfg, c, r, blocks):
    note(h, T_RECEIVED)
    note(h, r)
    h.counters[0].loading -= blocks
    if cfg.log:
        emit(c, e.log, ev.LOADED, 0, r, blocks)
    arrived(h, e, cfg, c, r)


@kernel
def reset_host(host, native, simple, e, cfg, c):
    """``reset_connector``: True if there is no host tier, or it could be cleared."""
    if host is None:
        return True
    return clear_host(native, simple, host, e, cfg, c)


@inline
def busy(host, simple):
    """Whether the engine keeps stepping without unfinished requests."""
    if host is None:
        return False
    hc = host.counters[0]
    return hc.ended > 0 or hc.delayed > 0 or transfers_pending(simple, host)


@inline
def copying(host):
    """Whether a copy is queued or under way: nothing scheduled is then no sign of a stall."""
    if host is None:
        return False
    return host.counters[0].spare_jobs < host.spare_jobs.size


@inline
def crashed(host):
    if host is None:
        return False
    return host.counters[0].crashed != 0


@inline
def num_held(host):
    """Requests in the holding queue."""
    if host is None:
        return 0
    return host.counters[0].held


@inline
def nothing_left(host, simple, c):
    """Whether the step just scheduled is empty and no other will follow: its output is processed at once."""
    if host is None:
        return False
    return c.rows == 0 and c.unfinished == 0 and not busy(host, simple)


@kernel
def close_host_turn(host, native, simple, c):
    """The host tier's row of this turn."""
    if host is None:
        return
    hc, row = host.counters[0], host.steps[c.logged_steps - 1]
    row.queries, row.hits = hc.queries, hc.hits
    row.recompute_queries, row.recompute_hits = hc.recompute_queries, hc.recompute_hits
    row.held, row.loading, row.removed = hc.held, hc.loading, hc.removed
    row.jobs = host.spare_jobs.size - hc.spare_jobs
    if simple is not None:
        row.pinned = simple.blocks.size - 1 - simple.pool[0].free
        row.occupied = simple.pool[0].occupied
    if native is not None:
        m = native.chunks.manager[0]
        row.occupied = m.fresh - m.free
        row.pinned = m.fresh - m.free - m.evictable


@inline
def wakes_at(host, c):
    """When the next copy ends, where nothing but copies can change anything; else infinity, which is no time to jump to."""
    if host is None:
        return np.inf
    if host.config[0].mode != SECONDS or host.queues[SUBMIT].head > 0 or c.empty_schedules <= c.in_flight:
        return np.inf
    return next_end(host)


@inline
def most_host_events(host, c):
    """Upper bound of the host tier's events in one turn."""
    if host is None:
        return 0
    return 3 * host.config[0].chunks + 8 * c.free_slots + 2 * c.free


@inline
def most_loads(host, c):
    """Upper bound of the requests that can begin to load in one turn: each takes the blocks of a chunk at least."""
    if host is None:
        return 0
    return c.free // host.config[0].blocks_per_chunk


@inline
def has_slots(host, e, cfg, c):
    """Whether one more turn finds a slot for every request that may be admitted or begin to load."""
    if host is None:
        return True
    to_come = e.reqs.size - c.finished - c.aborted - c.rejected - c.running - host.counters[0].held
    return c.free_slots >= cfg.max_running + 2 + min(to_come, most_loads(host, c))
