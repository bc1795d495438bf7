"""The engine's loop: arrivals, actions, one scheduling pass, output; until a moment in virtual time (event_loop_normal, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import DONE, GROW, PROCESSED, SCHEDULED, STALLED, UNTIL
from simkv.engine.sglang.actions import abort, flush_cache
from simkv.engine.sglang.compiled import entry, inline, splice
from simkv.engine.sglang.layout import NO_BATCH, NOT_ARRIVED
from simkv.engine.sglang.log import emit
from simkv.engine.sglang.output import reject, update
from simkv.engine.sglang.queue import clock, enqueue
from simkv.engine.sglang.quiet import quiet_turns
from simkv.engine.sglang.room import has_room
from simkv.engine.sglang.scheduler import schedule
from simkv.engine.vllm.queue import next_event, next_request, pop_timer
from simkv.events import layout as ev
from simkv.workload.workload import ABORT

START, SCHEDULING_DONE = 0, 1
IDLE_PASSES = 5
"""After more passes that schedule nothing, with nothing running and nothing to arrive, nothing will ever happen."""


@splice
def take_arrivals(e, cfg, c):
    now = clock(cfg, c)
    while True:
        r = np.int64(next_request(e.reqs, e.queue, c))
        if r < 0 or e.reqs[r].arrive > now:
            return
        if c.timers > 0 and r == e.queue[0].timer:
            pop_timer(e.reqs, e.queue, c)
        else:
            c.next_arrival += 1
        if e.reqs[r].status != NOT_ARRIVED:
            continue
        if e.reqs[r].num_prompt > cfg.max_input or e.reqs[r].num_prompt == 0:
            reject(e, cfg, c, r)
            continue
        c.unfinished += 1
        enqueue(e, cfg, c, r)
        if cfg.log:
            emit(c, e.log, ev.ARRIVED, 0, r, 0)


@splice
def take_actions(e, cfg, c):
    now = clock(cfg, c)
    while c.next_action < e.actions.size and e.actions[c.next_action].at <= now:
        action = e.actions[c.next_action]
        c.next_action += 1
        if action.op == ABORT:
            if action.req >= 0:
                abort(e, cfg, c, np.int64(action.req))
        else:
            flush_cache(e, cfg, c)


@splice
def begin_turn(e, cfg, c):
    """Arrivals, actions and one scheduling pass."""
    step = e.steps[c.logged_steps]
    step.time = clock(cfg, c)
    step.first_event = c.events
    step.turns = 1
    step.schedule = min(c.steps, ev.LAST_INDEX)
    step.duration = 0.0
    step.end = step.time
    step.prefill = step.decode = step.admitted = step.preempted = step.finished = step.cadence = 0
    queries, hits, recompute_queries, recompute_hits = c.queries, c.hits, c.recompute_queries, c.recompute_hits
    step.stored = c.stored
    step.removed = c.removed
    c.logged_steps += 1
    take_arrivals(e, cfg, c)
    take_actions(e, cfg, c)
    schedule(e, cfg, c, step)
    c.steps += 1
    c.turns += 1
    if c.batch_n > 0:
        c.batches += 1
        c.empty_schedules = 0
    else:
        c.empty_schedules += 1
    c.free = c.free_len + c.evictable
    step.queries = c.queries - queries
    step.hits = c.hits - hits
    step.recompute_queries = c.recompute_queries - recompute_queries
    step.recompute_hits = c.recompute_hits - recompute_hits
    step.running = c.running
    step.waiting = c.wait_len
    step.free = c.free


@splice
def end_turn(e, cfg, c):
    """The batch is done: its output is taken in."""
    step = e.steps[c.logged_steps - 1]
    c.now += step.duration
    if c.batch_n > 0:
        update(e, cfg, c)
    c.free = c.free_len + c.evictable
    step.stored = c.stored - step.stored
    step.removed = c.removed - step.removed
    step.cached = c.cached


@inline
def nothing_left(c):
    return c.unfinished == 0 and (c.in_running == 0 and c.last_kind == NO_BATCH)


@entry
def advance(e, cfg, c, until, pause):
    """Run turns until virtual time ``until`` (seconds, or steps in step mode). Returns why it stopped.

    With ``pause`` it returns after every half turn (SCHEDULED, PROCESSED) so that a caller can look; calling again
    goes on where it stopped.
    """
    c.next_turn = np.inf
    while True:
        if c.phase == START:
            t = next_event(e.reqs, e.queue, e.actions, c)
            if c.failed:
                return STALLED
            if c.unfinished == 0 and t == np.inf:
                return DONE
            if c.unfinished == 0 and cfg.reset_ratio:
                c.ratio = cfg.ratio_init
            hangs = c.empty_schedules > IDLE_PASSES and c.running == 0
            if hangs and t == np.inf:
                return STALLED
            if nothing_left(c) or (cfg.virtual and (c.unfinished == 0 or hangs)):
                if t > until:
                    c.next_turn = max(t, clock(cfg, c))
                    return UNTIL
                if cfg.virtual:
                    c.now = max(c.now, t)
                else:
                    c.steps = max(c.steps, np.int64(np.ceil(t)))
                c.empty_schedules = 0
            if clock(cfg, c) > until:
                c.next_turn = clock(cfg, c)
                return UNTIL
            if not pause and quiet_turns(e, cfg, c, until) > 0:
                continue
            if not has_room(e, cfg, c):
                return GROW
            begin_turn(e, cfg, c)
            c.phase = SCHEDULING_DONE
            if pause:
                return SCHEDULED
        end_turn(e, cfg, c)
        c.phase = START
        if pause:
            return PROCESSED
