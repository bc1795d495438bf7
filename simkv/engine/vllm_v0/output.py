"""What a step's output does: tokens, forks, ends (LLMEngine._process_model_outputs, 0.2.7)."""

from __future__ import annotations

from simkv.engine.contract import ABORTED, FINISHED, RUNNING, WAITING
from simkv.engine.vllm.output import record_gap
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, remove_waiting, start_successors
from simkv.engine.vllm_v0.blocks import free_group, free_swapped
from simkv.engine.vllm_v0.compiled import kernel
from simkv.engine.vllm_v0.descent import descend, end_beams, spread_prompt
from simkv.events import layout as ev


@kernel
def leave(e, cfg, c, r, status):
    """A request whose blocks are free already is over; its successors arrive."""
    req = e.reqs[r]
    if req.slot >= 0:
        slot = e.slots[req.slot]
        req.generated = slot.num_tokens - slot.num_prompt
        slot.req = -1
        e.free_slots[c.free_slots] = req.slot
        c.free_slots += 1
    req.slot = -1
    req.status = status
    req.finish = clock(cfg, c)
    c.unfinished -= 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
    if cfg.log:
        emit(c, e.log, ev.FINISHED if status == FINISHED else ev.ABORTED, 0, r, 0)


@kernel
def drop_ended(group, slots, n):
    """Close the gaps that ended groups leave in a list of slots; returns its length."""
    kept = 0
    for i in range(n):
        s = group[i]
        if slots[s].req >= 0:
            group[kept] = s
            kept += 1
    return kept


@kernel
def update(e, cfg, c):
    """Process the batch. Returns how many requests finished."""
    number, turn, now = c.batches - 1, c.logged_steps - 1, clock(cfg, c)
    done, cadence = 0, 0
    for i in range(c.rows):
        s = e.rows[i]
        slot = e.slots[s]
        position = slot.num_tokens - slot.num_prompt
        if position == 0:
            e.reqs[slot.req].first_token = now
            if cfg.log:
                emit(c, e.log, ev.FIRST_TOKEN, 0, slot.req, 0)
        elif slot.last_batch == number - 1:
            cadence += 1
        else:
            record_gap(e.gaps, c, turn, slot.req, now - slot.last_time)
        slot.last_batch = number
        slot.last_time = now
        slot.num_tokens += 1
        if slot.num_tokens >= slot.last_tokens:
            if cfg.beam:
                end_beams(e, cfg, c, s, position)
            else:
                free_group(e, cfg, c, s)
            leave(e, cfg, c, slot.req, FINISHED)
            done += 1
        elif c.prompt_step:
            spread_prompt(e, cfg, c, s)
        elif cfg.beam:
            descend(e, cfg, c, s, position)
    if done > 0:
        c.running = drop_ended(e.running, e.slots, c.running)
    c.finished += done
    step = e.steps[turn]
    step.finished = done
    step.cadence = cadence
    step.end = now
    return done


@kernel
def abort(e, cfg, c, r):
    """Client abort of a waiting, running or swapped request; unknown or ended ones are left alone."""
    req = e.reqs[r]
    if req.status == WAITING:
        remove_waiting(e, cfg, c, r)
        leave(e, cfg, c, r, ABORTED)
        c.aborted += 1
    elif req.status == RUNNING:
        away = False
        for k in range(c.swapped):
            away = away or e.swapped[k] == req.slot
        if away:
            free_swapped(e, cfg, c, req.slot)
        else:
            free_group(e, cfg, c, req.slot)
        leave(e, cfg, c, r, ABORTED)
        c.running = drop_ended(e.running, e.slots, c.running)
        c.swapped = drop_ended(e.swapped, e.slots, c.swapped)
        c.aborted += 1
