"""The loop: arrivals, client aborts, schedule, output; until a moment in virtual time. One step at a time, nothing overlaps
but transfers to and from host memory."""

from __future__ import annotations

import numpy as np

from simkv.engine.contiguous.compiled import entry, inline, splice
from simkv.engine.contiguous.output import abort, update
from simkv.engine.contiguous.scheduler import schedule
from simkv.engine.contiguous.transfers import next_transfer_end
from simkv.engine.contract import DONE, GROW, NOT_ARRIVED, PROCESSED, REJECTED, SCHEDULED, STALLED, UNTIL, WAITING
from simkv.engine.vllm.loop import MAX_EMPTY_SCHEDULES, acceptable
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, next_event, next_request, pop_timer, push_back, start_successors
from simkv.events import layout as ev
from simkv.workload.workload import ABORT

START, SCHEDULING_DONE = 0, 1


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
        req = e.reqs[r]
        if req.status != NOT_ARRIVED:
            continue
        if not acceptable(req, cfg):
            req.status = REJECTED
            c.rejected += 1
            start_successors(e.reqs, e.queue, c, r, now)
            continue
        req.status = WAITING
        req.waiting_since = now
        c.unfinished += 1
        push_back(e.reqs, e.queue, cfg, c, r)
        if cfg.log:
            emit(c, e.log, ev.ARRIVED, 0, r, 0)


@splice
def take_actions(e, cfg, c):
    """Aborts; there is no prefix cache to reset."""
    now = clock(cfg, c)
    while c.next_action < e.actions.size and e.actions[c.next_action].at <= now:
        action = e.actions[c.next_action]
        c.next_action += 1
        if action.op == ABORT and action.req >= 0:
            abort(e, cfg, c, np.int64(action.req))


@inline
def has_room(e, cfg, c):
    """Whether all logs can take one more turn; else ``c.need_events`` says how many event rows must be free."""
    c.need_events = 0
    if cfg.log:
        to_come = e.reqs.size - c.finished - c.aborted - c.rejected - c.unfinished
        # In one turn every cell can be freed by a transfer or an abort, taken, and freed again at the end.
        c.need_events = 3 * cfg.cells + 12 * cfg.max_running + 4 * to_come + 4 * e.actions.size + 64
        if c.logged_rows + c.need_events > e.log.size or c.logged_blocks + c.need_events > e.log_blocks.size:
            return False
        if c.events > cfg.max_events:
            return False
    return c.logged_steps < e.steps.size and c.logged_gaps + 2 * cfg.max_running <= e.gaps.size


@splice
def begin_turn(e, cfg, c):
    """Arrivals, actions and schedule()."""
    step = e.steps[c.logged_steps]
    step.time = clock(cfg, c)
    step.first_event = c.events
    step.turns = 1
    step.schedule = -1
    step.duration = 0.0
    step.end = step.time
    step.prefill = step.decode = step.admitted = step.preempted = step.finished = step.cadence = 0
    step.queries = step.hits = step.recompute_queries = step.recompute_hits = 0
    step.stored = step.removed = step.cached = 0
    c.logged_steps += 1
    take_arrivals(e, cfg, c)
    take_actions(e, cfg, c)
    c.rows = 0
    if c.unfinished > 0:
        step.schedule = min(c.steps, ev.LAST_INDEX)
        schedule(e, cfg, c, step)
        c.steps += 1
        c.turns += 1
        idle = c.rows == 0 and c.out_len == 0 and c.in_len == 0
        c.empty_schedules = c.empty_schedules + 1 if idle else 0
    step.running = c.running
    step.waiting = c.wait_len
    step.free = c.free


@splice
def end_turn(e, cfg, c):
    """The step's time passes and its tokens come out; without a step, time goes to the next transfer's end or arrival."""
    turn = c.logged_steps - 1
    step = e.steps[turn]
    if c.rows > 0:
        c.now += step.duration
        update(e, cfg, c, turn, c.steps)
    elif cfg.virtual and c.unfinished > 0:
        t = min(next_transfer_end(e, c), next_event(e.reqs, e.queue, e.actions, c))
        if t < np.inf:
            c.now = max(c.now, t)


@inline
def go_to_next_event(e, cfg, c, until):
    """Nothing is left to do now: on to the next arrival. Returns UNTIL or DONE if there is none in time, else PROCESSED."""
    t = next_event(e.reqs, e.queue, e.actions, c)
    if t == np.inf:
        return DONE
    if t > until:
        c.next_turn = max(t, clock(cfg, c))
        return UNTIL
    if cfg.virtual:
        c.now = max(c.now, t)
    else:
        c.steps = max(c.steps, np.int64(np.ceil(t)))
    return PROCESSED


@entry
def advance(e, cfg, c, until, pause):
    """Run turns until virtual time ``until`` (seconds, or steps in step mode). Returns why it stopped, as vLLM's loop does."""
    c.next_turn = np.inf
    while True:
        if c.phase == START:
            if c.empty_schedules > MAX_EMPTY_SCHEDULES:
                return STALLED
            if c.unfinished == 0:
                why = go_to_next_event(e, cfg, c, until)
                if why != PROCESSED:
                    return why
            if clock(cfg, c) > until:
                c.next_turn = clock(cfg, c)
                return UNTIL
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
