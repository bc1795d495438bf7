"""Stretches of turns in which running requests decode one token each and nothing else happens, run in one tight loop.

Nobody waits and nothing arrives, so a scheduling pass can only give every running request its next token, with a page for those
whose last one is full. What the turns write is what the long way (loop.py) writes, to the bit; whatever else is due, an eviction
too, is left to the long way.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.layout import DECODE, RUNNING
from simkv.engine.sglang.log import emit
from simkv.engine.sglang.pages import take_pages
from simkv.engine.sglang.queue import clock
from simkv.engine.sglang.room import has_room
from simkv.engine.vllm.pool import write_row
from simkv.engine.vllm.queue import next_event
from simkv.engine.vllm.scheduler import step_duration
from simkv.engine.vllm.stretch import goes_on, turns_with_room, write_step
from simkv.events import layout as ev

NEVER = np.int64(1) << 62


@inline
def decodes(req, batches):
    """Whether the request got a token from the last batch and goes on."""
    return req.status == RUNNING and req.generated > 0 and req.last_batch == batches - 1 and not req.to_abort


@inline
def all_decode(e, c):
    """Whether the next pass would find decodes only."""
    if c.last_kind != DECODE or c.wait_len > 0 or c.chunked >= 0 or c.in_running == 0 or c.in_running != c.running or c.failed:
        return False
    i = c.in_running - 1
    while i >= 0 and decodes(e.reqs[e.running[i]], c.batches):
        i -= 1
    return i < 0


@inline
def behind(req, c):
    """Tokens a request has got since its record was last written."""
    return c.batches - 1 - req.last_batch


@inline
def next_border(e, cfg, c):
    """Turns until the first request needs a page."""
    border = NEVER
    for i in range(c.in_running):
        req = e.reqs[e.running[i]]
        border = min(border, -(req.committed + behind(req, c)) % cfg.page)
    return border


@splice
def cross_border(e, cfg, c):
    """A page for every request whose last one is full. There are enough."""
    for i in range(c.in_running):
        r = np.int64(e.running[i])
        req = e.reqs[r]
        committed = req.committed + behind(req, c)
        if committed % cfg.page == 0:
            take_pages(e, cfg, c, r, e.rows[req.slot], committed // cfg.page, 1)
            c.held += 1
        if cfg.log:
            emit(c, e.log, ev.SCHEDULED, 0, r, 1)
    c.free = c.free_len + c.evictable


@splice
def plain_turns(e, cfg, c, most, until, due, context, crosses):
    """At most ``most`` turns that begin at or before ``until`` and before ``due``; the first does. Returns how many.

    Args:
        context: tokens that the first of them attends to, its own included.
        crosses: the first, and only one, takes pages.
    """
    n, events = c.in_running, c.events
    if crosses:
        cross_border(e, cfg, c)
    shares = goes_on(e.steps[c.logged_steps - 1], c, 0)
    row, tick, now, done = c.logged_steps - 1, c.logged_ticks, c.now, 0
    ended = float(e.steps[row].end)
    while done < most:
        time = now if cfg.virtual else float(c.steps + done)
        if time > until or time >= due:
            break
        duration = step_duration(cfg, 0, n, context, float(context - n) + 0.5 * n)
        if cfg.log and not crosses:
            for i in range(n):
                write_row(c, e.log, ev.SCHEDULED, 0, e.running[i], 1)
        if done == 0 and not shares:
            row += 1
            write_step(e.steps[row], c, time, duration, events)
        else:
            between = e.ticks[tick]
            between.time = time
            between.duration = duration
            between.end = ended
            tick += 1
        now += duration
        done += 1
        ended = now if cfg.virtual else float(c.steps + done)
        context += n
        c.ratio = max(c.ratio - cfg.ratio_decay, cfg.ratio_min)
    step = e.steps[row]
    step.turns += done
    step.end = ended
    step.cadence = n
    if cfg.log and not crosses:
        c.events += n * done
    c.now = now
    c.logged_steps, c.logged_ticks = row + 1, tick
    c.batches += done
    c.steps += done
    c.turns += done
    c.tokens += n * done
    return done


@splice
def hand_back(e, cfg, c):
    """Requests, the batch and the lists of a pass as the long way would have left them."""
    for i in range(c.in_running):
        r = e.running[i]
        req = e.reqs[r]
        done = behind(req, c)
        req.committed += done
        req.generated += done
        req.last_token = clock(cfg, c)
        req.last_batch = c.batches - 1
        row = e.batch[i]
        row.req = r
        row.prefix = req.committed - 1
        row.n = 1
        row.decode = 1
    c.batch_n = c.in_running
    c.victims = c.evicted = c.retracted = c.requeued = c.ordered = c.batch_held = c.empty_schedules = 0
    if cfg.preemption:
        c.full = 0


@kernel
def quiet_turns(e, cfg, c, until):
    """Run quiet turns until something else is due. Returns how many."""
    if not all_decode(e, c):
        return 0
    left, context = NEVER, 0
    for i in range(c.in_running):
        req = e.reqs[e.running[i]]
        left = min(left, req.num_output - req.generated - 1)
        context += req.committed + 1
    due = next_event(e.reqs, e.queue, e.actions, c)
    border, done = next_border(e, cfg, c), 0
    # A pass makes room for one page per running request even where few need one.
    while done < left and clock(cfg, c) <= until and clock(cfg, c) < due and c.free_len >= c.in_running and has_room(e, cfg, c):
        crosses = border == 0
        most = 1 if crosses else min(left - done, border, turns_with_room(e, cfg, c, c.need_rows))
        ran = plain_turns(e, cfg, c, most, until, due, context, crosses)
        border = next_border(e, cfg, c) if crosses else border - ran
        done += ran
        context += ran * c.in_running
    if done > 0:
        hand_back(e, cfg, c)
    return done
