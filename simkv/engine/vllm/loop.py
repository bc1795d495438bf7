"""The engine's loop: arrivals, actions, schedule, output; until a moment in virtual time.

One turn is one pass of EngineCore.step (or step_with_batch_queue with async scheduling, where the next batch is
scheduled before the one in flight is processed). ``advance`` runs as many turns as it can in one compiled call.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import CRASHED, DONE, GROW, NOT_ARRIVED, PROCESSED, SCHEDULED, STALLED, UNTIL, WAITING
from simkv.engine.offload.hooks import (
    busy,
    close_host_turn,
    copying,
    crashed,
    nothing_left,
    num_held,
    wakes_at,
)
from simkv.engine.vllm.compiled import entry, inline, splice
from simkv.engine.vllm.output import abort, reject, reset_prefix_cache, update
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, next_event, next_request, pop_timer, push_back
from simkv.engine.vllm.quiet import quiet_turns
from simkv.engine.vllm.room import has_room
from simkv.engine.vllm.scheduler import schedule
from simkv.events import layout as ev
from simkv.workload.workload import ABORT

START, SCHEDULING_DONE = 0, 1
MAX_EMPTY_SCHEDULES = 50
MOST_COPYING_SCHEDULES = 100_000
"""The same while copies to or from host memory are under way."""
MOST_IDLE_COPYING = 200
"""Empty steps after which an engine that copies in circles, with nobody left to serve, is taken to have ended."""


@inline
def acceptable(req, cfg):
    """Whether the server takes a request at all: a prompt, room for a token behind it, and max_tokens of at least 1."""
    return 0 < req.num_prompt < cfg.max_model_len and req.num_output > 0


@splice
def take_arrivals(e, cfg, c):
    now = clock(cfg, c)
    while True:
        r = next_request(e.reqs, e.queue, c)
        if r < 0 or e.reqs[r].arrive > now:
            return
        if c.timers > 0 and r == e.queue[0].timer:
            pop_timer(e.reqs, e.queue, c)
        else:
            c.next_arrival += 1
        if e.reqs[r].status != NOT_ARRIVED:
            continue
        if not acceptable(e.reqs[r], cfg):
            reject(e, cfg, c, r)
            continue
        e.reqs[r].status = WAITING
        c.unfinished += 1
        push_back(e.reqs, e.queue, cfg, c, r)
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
            reset_prefix_cache(e, cfg, c, action.op)


@splice
def begin_turn(e, cfg, c):
    """Arrivals, actions and schedule(). Returns the number of rows scheduled, -1 if schedule() was not called."""
    step = e.steps[c.logged_steps]
    step.time = clock(cfg, c)
    step.first_event = c.events
    step.turns = 1
    step.schedule = -1
    step.duration = 0.0
    step.end = step.time
    step.prefill = step.decode = step.admitted = step.preempted = step.finished = step.cadence = 0
    queries, hits, recompute_queries, recompute_hits = c.queries, c.hits, c.recompute_queries, c.recompute_hits
    step.stored = c.stored
    step.removed = c.removed
    c.kv_turn = c.logged_steps
    c.logged_steps += 1
    take_arrivals(e, cfg, c)
    take_actions(e, cfg, c)
    scheduled = -1
    if c.unfinished > 0 or busy(e.host, e.simple):
        step.schedule = min(c.steps, ev.LAST_INDEX)
        duration = schedule(e, cfg, c, step)
        scheduled = c.rows
        batch = e.batches[c.batch]
        batch.start = max(c.device_free, c.now)
        c.device_free = batch.start + duration
        batch.end = c.device_free
        batch.rows = c.rows
        batch.turn = c.logged_steps - 1
        batch.step = c.logged_steps - 1 + c.logged_ticks
        batch.number = c.batches
        c.batches += 1
        c.steps += 1
        c.turns += 1
        c.batch = 1 - c.batch
        c.in_flight += 1
        c.empty_schedules = c.empty_schedules + 1 if c.rows == 0 else 0
    step.queries = c.queries - queries
    step.hits = c.hits - hits
    step.recompute_queries = c.recompute_queries - recompute_queries
    step.recompute_hits = c.recompute_hits - recompute_hits
    step.running = c.running
    step.waiting = c.wait_len + num_held(e.host)
    step.free = c.free
    return scheduled


@inline
def close_turn(steps, c):
    """What can be said of a turn only at its end."""
    step = steps[c.logged_steps - 1]
    step.stored = c.stored - step.stored
    step.removed = c.removed - step.removed
    step.cached = c.cached


@splice
def end_turn(e, cfg, c):
    """Process the oldest batch if it is due. Returns 1 if one was processed."""
    processed = 0
    turn = c.logged_steps - 1
    scheduled = e.steps[turn].schedule >= 0
    depth = 2 if cfg.asynchronous else 1
    if c.in_flight > 0 and (not scheduled or c.in_flight >= depth or nothing_left(e.host, e.simple, c)):
        b = c.batch if c.in_flight == 2 else 1 - c.batch
        c.in_flight -= 1
        c.now = max(c.now, e.batches[b].end)
        done = update(e, cfg, c, b)
        if done > 0:
            c.barren_turns = 0
        processed = 1
    c.barren_turns += e.steps[turn].preempted > 0
    close_turn(e.steps, c)
    close_host_turn(e.host, e.native, e.simple, c)
    return processed


@inline
def stalled(host, cfg, c):
    """Nothing was scheduled for long, or turns preempt and nothing finishes.

    The most important running request is never preempted by others and gains a token in every turn, so something
    finishes within max_model_len such turns, unless a request preempts itself for ever.
    """
    if copying(host):
        return c.unfinished > 0 and c.empty_schedules > MOST_COPYING_SCHEDULES
    return c.empty_schedules > MAX_EMPTY_SCHEDULES or c.barren_turns > 4 * cfg.max_model_len + 1000


@entry
def advance(e, cfg, c, until, pause):
    """Run turns until virtual time ``until`` (seconds, or steps in step mode). Returns why it stopped.

    With ``pause`` it returns after every half turn (SCHEDULED, PROCESSED) so that a caller can look; calling again
    goes on where it stopped.
    """
    c.next_turn = np.inf
    while True:
        if c.phase == START:
            if stalled(e.host, cfg, c):
                return STALLED
            if crashed(e.host):
                return CRASHED
            if c.unfinished == 0 and c.empty_schedules > MOST_IDLE_COPYING and next_event(e.reqs, e.queue, e.actions, c) == np.inf:
                return DONE
            if c.in_flight == 0 and c.unfinished == 0 and not busy(e.host, e.simple):
                t = next_event(e.reqs, e.queue, e.actions, c)
                if t == np.inf:
                    return DONE
                if t > until:
                    c.next_turn = max(t, clock(cfg, c))
                    return UNTIL
                if cfg.virtual:
                    c.now = max(c.now, t)
                else:
                    c.steps = max(c.steps, np.int64(np.ceil(t)))  # else the loop would turn empty before a half step
            wake = wakes_at(e.host, c)
            if wake < np.inf:
                wake = min(wake, next_event(e.reqs, e.queue, e.actions, c))
                if wake > until:
                    c.next_turn = max(wake, clock(cfg, c))
                    return UNTIL
                c.now = max(c.now, wake)
            if clock(cfg, c) > until:
                c.next_turn = clock(cfg, c)
                return UNTIL
            if not pause and quiet_turns(e.plain, e, cfg, c, until) > 0:
                continue
            if not has_room(e, cfg, c):
                return GROW
            begin_turn(e, cfg, c)
            if crashed(e.host):
                close_turn(e.steps, c)
                return CRASHED
            if stalled(e.host, cfg, c):
                close_turn(e.steps, c)
                return STALLED
            c.phase = SCHEDULING_DONE
            if pause:
                return SCHEDULED
        end_turn(e, cfg, c)
        c.phase = START
        if pause:
            return PROCESSED
