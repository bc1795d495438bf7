"""The engine's loop: arrivals, aborts, schedule, output; until a moment in virtual time (LLMEngine.step, 0.2.7)."""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import DONE, GROW, NOT_ARRIVED, PROCESSED, REJECTED, SCHEDULED, STALLED, UNTIL, WAITING
from simkv.engine.vllm.loop import MAX_EMPTY_SCHEDULES, close_turn
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, next_event, next_request, pop_timer, push_back, start_successors
from simkv.engine.vllm_v0.compiled import entry, inline, splice
from simkv.engine.vllm_v0.output import abort, update
from simkv.engine.vllm_v0.scheduler import schedule
from simkv.events import layout as ev
from simkv.workload.workload import ABORT

NO_SWAP_SPACE = 100
"""Beside the reasons of contract.py: V0 raises RuntimeError when a group has to be swapped out and host memory is full."""
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
        if e.reqs[r].status != NOT_ARRIVED:
            continue
        if e.reqs[r].num_prompt < 1 or e.reqs[r].num_output < 1:  # the front end answers with an error
            e.reqs[r].status = REJECTED
            c.rejected += 1
            start_successors(e.reqs, e.queue, c, r, now)
            continue
        e.reqs[r].status = WAITING
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
def most_events(e, cfg, c):
    """Upper bound of the events one turn can write: every table entry released, swapped in, forked to every lane."""
    to_come = e.reqs.size - c.finished - c.aborted - c.rejected - c.unfinished
    entries = c.held + c.cpu_held + cfg.budget // cfg.block_size + cfg.max_num_seqs + e.slots.size
    return (cfg.width + 4) * entries + 8 * (cfg.max_num_seqs + e.slots.size) + 4 * (to_come + c.unfinished + e.actions.size) + 64


@inline
def has_room(e, cfg, c):
    """Whether all logs can take one more turn; else ``c.need_events`` says how many event rows must be free."""
    c.need_events = 0
    if cfg.log:
        need = most_events(e, cfg, c)
        c.need_events = need
        if c.logged_rows + need > e.log.size or c.logged_blocks + need > e.log_blocks.size or c.events > cfg.max_events:
            return False
    return c.logged_steps < e.steps.size and c.logged_gaps + e.slots.size <= e.gaps.size


@splice
def begin_turn(e, cfg, c):
    """Arrivals, actions and schedule(). False if swapping out failed."""
    step = e.steps[c.logged_steps]
    step.time = step.end = clock(cfg, c)
    step.first_event = c.events
    step.turns = 1
    step.schedule = -1
    step.duration = 0.0
    step.prefill = step.decode = step.admitted = step.preempted = step.finished = step.cadence = 0
    step.queries = step.hits = step.recompute_queries = step.recompute_hits = 0
    step.stored = step.removed = 0
    c.logged_steps += 1
    take_arrivals(e, cfg, c)
    take_actions(e, cfg, c)
    c.in_flight = 0
    if c.unfinished > 0:
        step.schedule = min(c.steps, ev.LAST_INDEX)
        duration = schedule(e, cfg, c, step)
        if duration < 0.0:
            return False
        c.last_end = c.now + duration
        c.batches += 1
        c.steps += 1
        c.turns += 1
        c.in_flight = 1
        c.empty_schedules = c.empty_schedules + 1 if c.rows == 0 else 0
    step.running = c.running
    step.waiting = c.wait_len + c.swapped
    step.free = c.free
    return True


@entry
def advance(e, cfg, c, until, pause):
    """Run turns until virtual time ``until`` (seconds, or steps in step mode). Returns why it stopped.

    With ``pause`` it returns after every half turn (SCHEDULED, PROCESSED); calling again goes on where it stopped.
    """
    c.next_turn = np.inf
    while True:
        if c.phase == START:
            if c.empty_schedules > MAX_EMPTY_SCHEDULES:
                return STALLED
            if c.unfinished == 0:
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
            if clock(cfg, c) > until:
                c.next_turn = clock(cfg, c)
                return UNTIL
            if not has_room(e, cfg, c):
                return GROW
            if not begin_turn(e, cfg, c):
                return NO_SWAP_SPACE
            c.phase = SCHEDULING_DONE
            if pause:
                return SCHEDULED
        if c.in_flight > 0:
            c.now = max(c.now, c.last_end)
            update(e, cfg, c)
        close_turn(e.steps, c)
        c.phase = START
        if pause:
            return PROCESSED
