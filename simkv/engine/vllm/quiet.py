"""Stretches of turns in which running requests decode one token each and nothing else happens, run in one tight loop.

Most turns of a replica that is not overloaded are of this kind. Nobody waits and nothing arrives, so schedule() can only
give every running request its next token, and the output only takes that token in. What the turns write is what the long
way (loop.py) writes, to the bit: a duration is the same floating-point operations in the same order. A request that
crosses the border of a block on the way gets its block from the same code; whatever else is due is left to the long way.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.admission import run_adapter
from simkv.engine.vllm.compiled import inline, kernel, splice
from simkv.engine.vllm.layout import CONTINUED
from simkv.engine.vllm.pool import write_row
from simkv.engine.vllm.queue import clock, next_event
from simkv.engine.vllm.room import has_room
from simkv.engine.vllm.scheduler import step_duration
from simkv.engine.vllm.slots import grow_blocks, set_quiet, store_full_blocks
from simkv.engine.vllm.stretch import goes_on, turns_with_room, write_step
from simkv.events import layout as ev

NEVER = np.int64(1) << 62


@inline
def decodes(slot, reqs, lag, number):
    """Whether the slot's request got a token from batch ``number`` and needs one token of computing for its next.

    With async scheduling (``lag`` 1) one more batch is on the device, and holds exactly one token of it.
    """
    if slot.last_batch != number or slot.computed - slot.num_tokens + 1 != lag:
        return False
    return slot.placeholders == lag and slot.in_flight == lag and reqs[slot.req].stale == 0


@inline
def all_decode(e, c, lag):
    """Whether schedule() would now find decodes only, one token each, and the batch on the device holds the same."""
    if c.running == 0 or c.wait_len > 0 or c.in_flight != lag:
        return False
    if lag > 0:
        batch = e.batches[1 - c.batch]
        if batch.rows != c.running or batch.turn != c.logged_steps - 1:
            return False
    i = c.running - 1
    while i >= 0 and decodes(e.slots[e.running[i]], e.reqs, lag, c.batches - 1 - lag):  # newcomers stand last
        i -= 1
    return i < 0


@inline
def next_border(e, c, number):
    """Turns until the first request needs a block or has one to register; a slot's figures are of batch ``last_batch``."""
    border = NEVER
    for i in range(c.running):
        slot = e.slots[e.running[i]]
        border = min(border, slot.quiet - 1 - slot.computed - (number - slot.last_batch))
    return max(border, 0)


@inline
def catch_up(slot, number):
    """The slot as it stands after batch ``number``."""
    slot.computed += number - slot.last_batch
    slot.num_tokens += number - slot.last_batch
    slot.last_batch = number


@splice
def cross_border(e, cfg, c, number):
    """schedule()'s part of a turn in which a request needs a block or has one to register. There are enough free blocks."""
    for i in range(c.running):
        s = e.running[i]
        slot = e.slots[s]
        if slot.computed + (number - slot.last_batch) + 1 >= slot.quiet:
            catch_up(slot, number)
            grow_blocks(e, cfg, c, s, 1)


@splice
def register_full(e, cfg, c, number):
    """The output's part of such a turn: with async scheduling a block can be full only now."""
    for i in range(c.running):
        s = e.running[i]
        slot = e.slots[s]
        known = slot.computed + (number - slot.last_batch)
        if known >= slot.store_at:
            store_full_blocks(e, cfg, c, s, np.int64(known))
            set_quiet(e.groups, e.lengths, e.slots, cfg, s)


@splice
def plain_turns(e, cfg, c, lag, most, until, due, context, shares):
    """At most ``most`` turns that begin at or before ``until`` and before ``due``; the first does. Returns how many.

    Args:
        context: tokens that the first of them attends to, its own included.
        shares: the first goes on in the last row of ``e.steps``; the others do anyway.
    """
    n = c.running
    now, device_free, on_device = c.now, c.device_free, e.batches[1 - c.batch].end
    row, tick = c.logged_steps - 1, c.logged_ticks
    ended, begun, start, done = float(e.steps[row].end), 0.0, 0.0, 0
    while done < most:
        time = now if cfg.virtual else float(c.steps + done)
        if time > until or time >= due:
            break
        duration = step_duration(cfg, 0, n, context, float(context - n) + 0.5 * n)
        if cfg.log:
            for i in range(n):
                write_row(c, e.log, ev.SCHEDULED, 0, e.slots[e.running[i]].req, 1)
        start = max(device_free, now)
        device_free = start + duration
        if lag == 0:
            on_device = device_free
        before, begun = ended, time
        now = max(now, on_device)
        on_device = device_free
        done += 1
        ended = now if cfg.virtual else float(c.steps + done)
        if done == 1 and not shares:
            if lag > 0:
                e.steps[row].end = ended
                e.steps[row].cadence = n
            row += 1
            write_step(e.steps[row], c, time, duration, c.events)
        else:
            between = e.ticks[tick]
            between.time = time
            between.duration = duration
            between.end = ended if lag > 0 else before
            tick += 1
        context += n
    step = e.steps[row]
    step.turns += done
    step.end = begun if lag > 0 else ended
    step.cadence = 0 if lag > 0 else n
    c.now, c.device_free = now, device_free
    if cfg.log:
        c.events += n * done
    c.logged_steps, c.logged_ticks = row + 1, tick
    batch = e.batches[c.batch if done % 2 == 1 else 1 - c.batch]
    batch.start, batch.end, batch.rows = start, device_free, n
    batch.turn, batch.step, batch.number = row, row + tick, c.batches + done - 1
    c.batch = (c.batch + done) % 2
    c.batches += done
    c.steps += done
    c.turns += done
    c.stamp += done
    c.tokens += n * done
    return done


@inline
def count_blocks(step, c, events, stored, removed):
    """What happened to blocks in a turn, from the counters as they were before it."""
    step.first_event = events
    step.stored = c.stored - stored
    step.removed = c.removed - removed
    step.cached = c.cached


@splice
def hand_back(e, cfg, c, lag):
    """Slots and the last batch as the long way would have left them."""
    rows = e.rows[1 - c.batch]
    c.rows = c.running
    c.empty_schedules = 0
    c.kv_turn = c.logged_steps - 1
    c.loras = 0
    for i in range(c.running):
        s = e.running[i]
        slot = e.slots[s]
        catch_up(slot, c.batches - 1 - lag)
        slot.last_time = clock(cfg, c)
        row = rows[i]
        row.req = slot.req
        row.slot = s
        row.kind = CONTINUED
        row.computed = slot.computed - 1
        row.n = 1
        row.sampled = 1
        lora = e.reqs[slot.req].lora
        if cfg.max_loras > 0 and lora >= 0:
            run_adapter(e.adapters, c, lora)


@kernel
def quiet_turns(plain, e, cfg, c, until):
    """Run quiet turns until something else is due. Returns how many; ``plain`` is None where there is a host tier."""
    if plain is None:
        return 0
    lag = 1 if cfg.asynchronous else 0
    if not all_decode(e, c, lag) or c.running > cfg.budget:
        return 0
    left, context = NEVER, 0
    for i in range(c.running):
        slot = e.slots[e.running[i]]
        left = min(left, slot.last_tokens - slot.num_tokens - 1)
        context += slot.computed + 1
    due = next_event(e.reqs, e.queue, e.actions, c)
    border, done = next_border(e, c, c.batches - 1 - lag), 0
    while done < left and clock(cfg, c) <= until and clock(cfg, c) < due and has_room(e, cfg, c):
        number, events, stored, removed = c.batches - 1 - lag, c.events, c.stored, c.removed
        crossing, most = border == 0, min(left - done, border, turns_with_room(e, cfg, c, c.need_events))
        if crossing:
            if c.free < c.running * cfg.num_groups:
                break
            c.kv_turn = c.logged_steps
            cross_border(e, cfg, c, number)
            most = 1
        shares = not crossing and goes_on(e.steps[c.logged_steps - 1], c, lag)
        ran = plain_turns(e, cfg, c, lag, most, until, due, context, shares)
        if crossing:
            if cfg.asynchronous and cfg.caching:
                register_full(e, cfg, c, number)
            count_blocks(e.steps[c.logged_steps - 1], c, events, stored, removed)
            border = next_border(e, c, c.batches - 1 - lag) + ran
        border -= ran
        done += ran
        context += ran * c.running
    if done > 0:
        hand_back(e, cfg, c, lag)
    return done
