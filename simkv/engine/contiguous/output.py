"""Take in a step's tokens, end what is finished; client aborts."""

from __future__ import annotations

import numpy as np

from simkv.engine.contiguous.compiled import inline, kernel
from simkv.engine.contiguous.pieces import end_request, end_slot
from simkv.engine.contract import ABORTED, FINISHED, RUNNING, WAITING
from simkv.engine.vllm.output import drop_ended, record_gap
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, remove_waiting
from simkv.events import layout as ev


@inline
def take_token(e, cfg, c, s, turn, number):
    """One more token of a slot. Returns 1 if its predecessor came out of the step before."""
    slot = e.slots[s]
    r = np.int64(slot.req)
    now = clock(cfg, c)
    regular = 0
    if slot.last_batch == number - 1:
        regular = 1
    elif slot.num_tokens == slot.num_prompt:
        e.reqs[r].first_token = now
        if cfg.log:
            emit(c, e.log, ev.FIRST_TOKEN, 0, r, 0)
    else:
        record_gap(e.gaps, c, turn, r, now - slot.last_time)
    slot.last_batch = number
    slot.last_time = now
    slot.num_tokens += 1
    return regular


@kernel
def end_batch(e, cfg, c):
    """The last member of a static batch has ended: all answers go out, all memory is free."""
    for i in range(c.running):
        s = e.running[i]
        end_slot(e, cfg, c, s, np.int64(e.slots[s].ended))
    c.running = 0
    c.batch_left = 0
    c.batch_prompt = 0


@kernel
def update(e, cfg, c, turn, number):
    """Process the step's rows. Returns how many requests finished."""
    before, cadence = c.finished, 0
    for i in range(c.rows):
        row = e.rows[i]
        if not row.sampled:
            continue
        s = np.int64(row.slot)
        cadence += take_token(e, cfg, c, s, turn, number)
        if e.slots[s].num_tokens >= e.slots[s].last_tokens:
            if cfg.static:
                e.slots[s].ended = FINISHED
                c.batch_left -= 1
            else:
                end_slot(e, cfg, c, s, FINISHED)
    if cfg.static:
        if c.batch_left == 0 and c.running > 0:
            end_batch(e, cfg, c)
    elif c.finished > before:
        drop_ended(e.running, e.slots, c)
    step = e.steps[turn]
    step.finished = c.finished - before
    step.cadence = cadence
    step.end = clock(cfg, c)
    return c.finished - before


@kernel
def abort(e, cfg, c, r):
    """Client abort; unknown or ended requests are left alone.

    Memory that a transfer or a static batch still uses is freed, and the request ended, when that is over.
    """
    req = e.reqs[r]
    if req.status == WAITING:
        remove_waiting(e, cfg, c, r)
        c.host_used -= req.computed
        end_request(e, cfg, c, r, ABORTED)
        return
    if req.status != RUNNING or e.slots[req.slot].ended > 0:
        return
    s = np.int64(req.slot)
    if cfg.static:
        e.slots[s].ended = ABORTED
        c.batch_left -= 1
        if c.batch_left == 0:
            end_batch(e, cfg, c)
        return
    for i in range(c.running):
        if e.running[i] == s:
            end_slot(e, cfg, c, s, ABORTED)
            drop_ended(e.running, e.slots, c)
            return
    e.slots[s].ended = ABORTED
