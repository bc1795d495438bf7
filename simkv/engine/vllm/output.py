"""update_from_output(): take in sampled tokens, end what is finished (scheduler.py and async_scheduler.py, 0.32.0)."""

from __future__ import annotations

import numpy as np

from simkv.engine.contract import ABORTED, FINISHED, REJECTED, RUNNING, WAITING
from simkv.engine.offload.hooks import after_output, before_output, ends, leave, reset_host
from simkv.engine.vllm.compiled import inline, kernel
from simkv.engine.vllm.pool import clear_keys, emit
from simkv.engine.vllm.queue import clock, remove_waiting, start_successors
from simkv.engine.vllm.scheduler import preempt
from simkv.engine.vllm.slots import set_quiet, store_full_blocks
from simkv.events import layout as ev
from simkv.workload.workload import RESET_CONNECTOR, RESET_RUNNING


@inline
def record_gap(gaps, c, step, r, gap):
    record = gaps[c.logged_gaps]
    record.gap = gap
    record.step = step
    record.req = r
    c.logged_gaps += 1


@kernel
def end_request(e, cfg, c, r, status):
    """Release what a request holds and let its successors arrive."""
    req = e.reqs[r]
    s = np.int64(req.slot)
    running = req.status == RUNNING
    if running:
        req.generated = e.slots[s].num_tokens - e.slots[s].num_prompt
    req.status = status
    ends(e.host, e.native, e.simple, e, cfg, c, r)
    if running:
        leave(e.host, e.plain, e, cfg, c, s, r)
        e.slots[s].req = -1
    req.slot = -1
    req.finish = clock(cfg, c)
    c.unfinished -= 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
    if cfg.log:
        emit(c, e.log, ev.FINISHED if status == FINISHED else ev.ABORTED, 0, r, 0)


@kernel
def drop_ended(running, slots, c):
    """Close the gaps that ended requests leave in the running list, order kept."""
    n = 0
    for i in range(c.running):
        s = running[i]
        if slots[s].req >= 0:
            running[n] = s
            n += 1
    c.running = n


@kernel
def take_stale_token(e, cfg, c, r, step):
    """A token of a request that was preempted while its batch was in flight. Returns 1 if it ends the request."""
    req = e.reqs[r]
    now = clock(cfg, c)
    if req.generated == 0:
        req.first_token = now
        if cfg.log:
            emit(c, e.log, ev.FIRST_TOKEN, 0, r, 0)
    else:
        record_gap(e.gaps, c, step, r, now - req.last_token)
    req.generated += 1
    req.last_token = now
    if req.num_prompt + req.generated < min(req.num_prompt + req.num_output, cfg.max_model_len):
        return 0
    remove_waiting(e, cfg, c, r)
    end_request(e, cfg, c, r, FINISHED)
    return 1


@kernel
def update(e, cfg, c, b):
    """Process batch ``b``. Returns how many requests finished."""
    batch = e.batches[b]
    rows = e.rows[b]
    number, turn, step = batch.number, batch.turn, batch.step
    copied = before_output(e.host, e, cfg, c, b)
    now = clock(cfg, c)
    done, ended_running, cadence = 0, 0, 0
    for i in range(batch.rows):
        row = rows[i]
        r, s = np.int64(row.req), np.int64(row.slot)
        if cfg.asynchronous:
            req = e.reqs[r]
            s = np.int64(req.slot)
            if req.status != RUNNING and req.status != WAITING:
                continue
            if s >= 0:
                e.slots[s].in_flight -= row.n
            if req.stale > 0:
                req.stale -= row.n
                if row.sampled and not req.drop:
                    done += take_stale_token(e, cfg, c, r, step)
                continue
        if not row.sampled:
            continue
        slot = e.slots[s]
        if slot.last_batch == number - 1:
            cadence += 1
        elif slot.num_tokens == slot.num_prompt:
            e.reqs[r].first_token = now
            if cfg.log:
                emit(c, e.log, ev.FIRST_TOKEN, 0, r, 0)
        else:
            record_gap(e.gaps, c, step, r, now - slot.last_time)
        slot.last_batch = number
        slot.last_time = now
        slot.num_tokens += 1
        if cfg.asynchronous:
            slot.placeholders -= 1
            if cfg.caching and slot.computed - slot.placeholders >= slot.store_at:
                store_full_blocks(e, cfg, c, s, slot.computed - slot.placeholders)
                set_quiet(e.groups, e.lengths, e.slots, cfg, s)
        if slot.num_tokens >= slot.last_tokens:
            end_request(e, cfg, c, r, FINISHED)
            done += 1
            ended_running += 1
    if ended_running > 0:
        drop_ended(e.running, e.slots, c)
    after_output(e.host, e.native, e.simple, e, cfg, c, copied)
    c.finished += done
    e.steps[turn].finished = done
    e.steps[turn].cadence = cadence
    e.steps[turn].end = now
    return done


@kernel
def abort(e, cfg, c, r):
    """Client abort of a waiting or running request; unknown or ended ones are left alone."""
    req = e.reqs[r]
    if req.status == WAITING:
        remove_waiting(e, cfg, c, r)
    elif req.status != RUNNING:
        return
    running = req.status == RUNNING
    end_request(e, cfg, c, r, ABORTED)
    if running:
        drop_ended(e.running, e.slots, c)
    c.aborted += 1


@kernel
def reset_prefix_cache(e, cfg, c, op):
    """Forget all keys, which needs every block but the null block free; may preempt everything first.

    The host tier is cleared too if the caller wants it, even where the device's cache could not be; but not where vLLM
    raises an error: everything was preempted, and blocks are in use all the same.
    """
    if op & RESET_RUNNING:
        while c.running > 0:
            c.running -= 1
            preempt(e, cfg, c, e.running[c.running], 1)
    succeeded = c.free == cfg.num_blocks - 1
    if succeeded:
        clear_keys(e, cfg, c)
    raised = not succeeded and op & RESET_RUNNING != 0
    cleared = succeeded
    if op & RESET_CONNECTOR and not raised:
        cleared = reset_host(e.host, e.native, e.simple, e, cfg, c) and succeeded
    if cfg.log:
        if succeeded:
            emit(c, e.log, ev.CLEARED, 0, -1, 0)
        if not cleared:
            emit(c, e.log, ev.RESET_FAILED, 0, -1, raised)


@kernel
def reject(e, cfg, c, r):
    """The server answers with an error, the queue never sees the request."""
    e.reqs[r].status = REJECTED
    c.rejected += 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
