"""schedule(): prompts first, else one token for every running group (vllm/core/scheduler.py, 0.2.7).

A step computes either prompts or decodes, never both. Nothing is admitted while a group is swapped out. Preemption takes
the group that arrived last: one sequence is recomputed, several are swapped to host memory.
"""

from __future__ import annotations

from simkv.engine.contract import REJECTED, RUNNING, WAITING
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, head, pop_head, push_front, start_successors
from simkv.engine.vllm.scheduler import step_duration
from simkv.engine.vllm_v0.blocks import (
    allocate_prompt,
    append_slots,
    ceil_div,
    distinct_blocks,
    free_group,
    swap_in,
    swap_out,
)
from simkv.engine.vllm_v0.compiled import inline, kernel, splice
from simkv.events import layout as ev


@kernel
def ignore(e, cfg, c, r):
    """A prompt V0 can never run is finished without a word (FINISHED_IGNORED)."""
    req = e.reqs[r]
    req.status = REJECTED
    req.finish = clock(cfg, c)
    c.rejected += 1
    c.unfinished -= 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
    if cfg.log:
        emit(c, e.log, ev.ABORTED, 0, r, 0)


@kernel
def admit(e, cfg, c, r):
    """Blocks and a slot for the group at the head of the queue."""
    req = e.reqs[r]
    c.free_slots -= 1
    s = e.free_slots[c.free_slots]
    slot = e.slots[s]
    slot.req = r
    slot.num_prompt = req.num_prompt
    slot.num_tokens = req.num_prompt + req.generated
    slot.last_tokens = min(req.num_prompt + req.num_output, cfg.max_model_len + 1)
    slot.num_seqs = 1
    slot.last_batch = -2
    slot.last_time = req.last_token
    e.order[s, 0] = 0
    allocate_prompt(e, cfg, c, s)
    new = req.preempted == 0
    if new:
        req.hit = 0
        req.scheduled = clock(cfg, c)
        c.requests += 1
    req.status = RUNNING
    req.slot = s
    if cfg.log:
        emit(c, e.log, ev.ADMITTED if new else ev.RESUMED, 0, r, 0)
    e.running[c.running] = s
    c.running += 1
    e.rows[c.rows] = s
    c.rows += 1


@splice
def schedule_prompts(e, cfg, c):
    """Admit from the head of the queue until something does not fit. Returns (admitted, ignored, tokens, longest)."""
    admitted, ignored, total, longest = 0, 0, 0, 0
    usable = cfg.num_blocks - 1
    while c.wait_len > 0:
        r = head(e.queue, cfg, c)
        n = e.reqs[r].num_prompt + e.reqs[r].generated
        need = ceil_div(n, cfg.block_size)
        if n > cfg.prompt_limit or usable - need < cfg.watermark:
            pop_head(e.reqs, e.queue, cfg, c)
            ignore(e, cfg, c, r)
            ignored += 1
            continue
        if c.free - need < cfg.watermark:
            break
        batched = (admitted + 1) * max(longest, n)
        if batched > cfg.budget or (c.running + 1) * cfg.width > cfg.max_num_seqs or batched - (total + n) > cfg.max_paddings:
            break
        pop_head(e.reqs, e.queue, cfg, c)
        admit(e, cfg, c, r)
        admitted += 1
        total += n
        longest = max(longest, n)
    return admitted, ignored, total, longest


@kernel
def preempt(e, cfg, c, s):
    """Take the GPU from a group. False if it should be swapped and host memory has no room, which ends the engine."""
    slot = e.slots[s]
    r = slot.req
    req = e.reqs[r]
    if cfg.width == 1 and not cfg.swap_always:
        free_group(e, cfg, c, s)
        req.generated = slot.num_tokens - slot.num_prompt
        req.last_token = slot.last_time
        req.status = WAITING
        req.slot = -1
        slot.req = -1
        e.free_slots[c.free_slots] = s
        c.free_slots += 1
        push_front(e.reqs, e.queue, cfg, c, r)
    else:
        need = distinct_blocks(e, cfg, c, s)
        if need > c.cpu_free:
            c.failed_req = r
            c.failed_need = need
            return False
        swap_out(e, cfg, c, s)
        e.swapped[c.swapped] = s
        c.swapped += 1
    req.preempted += 1
    if cfg.log:
        emit(c, e.log, ev.PREEMPTED, 0, r, 0)
    return True


@inline
def sort_by_arrival(reqs, slots, group, n):
    """Stable, and in one pass where the order is right already."""
    for i in range(1, n):
        s = group[i]
        arrive = reqs[slots[s].req].arrive
        k = i
        while k > 0 and reqs[slots[group[k - 1]].req].arrive > arrive:
            group[k] = group[k - 1]
            k -= 1
        group[k] = s


@splice
def grow_running(e, cfg, c):
    """One more token for every running group, the last ones preempted as needed. Returns the preemptions, -1 if one failed."""
    sort_by_arrival(e.reqs, e.slots, e.running, c.running)
    preempted, kept, first, stop = 0, 0, 0, c.running
    while first < stop:
        s = e.running[first]
        first += 1
        here = True
        while here and e.slots[s].num_seqs > c.free:
            victim = s
            if first < stop:
                stop -= 1
                victim = e.running[stop]
            here = victim != s
            if not preempt(e, cfg, c, victim):
                return -1
            preempted += 1
        if here:
            append_slots(e, cfg, c, s)
            e.running[kept] = s
            kept += 1
    c.running = kept
    return preempted


@splice
def swap_in_groups(e, cfg, c):
    """Bring back swapped groups in order of arrival while they fit."""
    back = 0
    while back < c.swapped:
        s = e.swapped[back]
        slot = e.slots[s]
        if c.free - (distinct_blocks(e, cfg, c, s) + slot.num_seqs) < cfg.watermark:
            break
        if (c.running + 1) * cfg.width > cfg.max_num_seqs:
            break
        swap_in(e, cfg, c, s)
        if cfg.log:
            emit(c, e.log, ev.RESUMED, 0, slot.req, slot.num_tokens - 1)
        append_slots(e, cfg, c, s)
        e.running[c.running] = s
        c.running += 1
        back += 1
    c.swapped -= back
    for k in range(c.swapped):
        e.swapped[k] = e.swapped[k + back]


@splice
def schedule(e, cfg, c, step):
    """One schedule() call: fills ``e.rows`` and the step row. Returns the batch's duration in seconds, -1 if swapping failed."""
    c.rows = 0
    c.prompt_step = 1
    c.swap_moved = 0
    admitted, ignored, preempted, prefill, longest, decode, context, attention = 0, 0, 0, 0, 0, 0, 0, 0.0
    if c.swapped == 0:
        admitted, ignored, prefill, longest = schedule_prompts(e, cfg, c)
        context = prefill
        attention = admitted * (0.5 * longest * longest)
    if admitted + ignored == 0:
        c.prompt_step = 0
        preempted = grow_running(e, cfg, c)
        if preempted < 0:
            return -1.0
        sort_by_arrival(e.reqs, e.slots, e.swapped, c.swapped)
        if preempted == 0:
            swap_in_groups(e, cfg, c)
        for i in range(c.running):
            slot = e.slots[e.running[i]]
            e.rows[i] = e.running[i]
            decode += slot.num_seqs
            context += slot.num_seqs * slot.num_tokens
        c.rows = c.running
        attention = float(context)
    if cfg.log:
        for i in range(c.rows):
            slot = e.slots[e.rows[i]]
            emit(c, e.log, ev.SCHEDULED, 0, slot.req, slot.num_tokens if c.prompt_step else slot.num_seqs)
    duration = step_duration(cfg, admitted * longest, decode, context, attention) + c.swap_moved * cfg.swap_block_s
    step.duration = duration
    step.prefill = prefill
    step.decode = decode
    step.admitted = admitted
    step.preempted = preempted
    c.preemptions += preempted
    c.tokens += prefill + decode
    if c.rows > 0:
        blocks = cfg.num_blocks - 1 - c.free
        c.entry_steps += c.held
        c.block_steps += blocks
        c.entry_seconds += duration * c.held
        c.block_seconds += duration * blocks
    return duration
