"""schedule(): which requests compute how many tokens in this step (vllm/v1/core/sched/scheduler.py, 0.32.0).

Running requests first, in list order; the waiting queue only if nothing was preempted. Preemption recomputes.
"""

from __future__ import annotations

from simkv.engine.contract import WAITING
from simkv.engine.offload.hooks import close_schedule, leave, may_preempt, num_held, was_preempted
from simkv.engine.offload.waiting import serve
from simkv.engine.vllm.admission import add_row, schedule_waiting
from simkv.engine.vllm.compiled import inline, kernel, splice
from simkv.engine.vllm.layout import CONTINUED
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import push_front
from simkv.engine.vllm.slots import grow
from simkv.events import layout as ev


@kernel
def preempt(e, cfg, c, s, drop):
    """Free the blocks of slot ``s`` and put its request at the front of the queue, to be computed again.

    Output of it still in flight (async scheduling) is *stale*: taken in later, or dropped after a cache reset.
    """
    slot = e.slots[s]
    r = slot.req
    req = e.reqs[r]
    leave(e.host, e.plain, e, cfg, c, s, r)
    was_preempted(e.host, r)
    req.generated = slot.num_tokens - slot.num_prompt
    req.last_token = slot.last_time
    req.drop = drop or (req.drop and req.stale > 0)
    req.stale = slot.in_flight
    req.preempted += 1
    req.status = WAITING
    req.slot = -1
    push_front(e.reqs, e.queue, cfg, c, r)
    if cfg.log:
        emit(c, e.log, ev.PREEMPTED, 0, r, 0)


@inline
def take_back_row(c, rows, s):
    """Forget a victim's row of this step; returns its tokens."""
    for i in range(c.rows):
        if rows[i].slot == s:
            n = rows[i].n
            for k in range(i, c.rows - 1):
                rows[k] = rows[k + 1]
            c.rows -= 1
            return n
    return 0


@inline
def remove_running(running, c, i):
    for k in range(i, c.running - 1):
        running[k] = running[k + 1]
    c.running -= 1


@inline
def least_important(reqs, slots, running, c):
    """Position of the running request with the greatest (priority, arrival); the first of equals."""
    worst = 0
    for k in range(1, c.running):
        r, w = reqs[slots[running[k]].req], reqs[slots[running[worst]].req]
        if r.priority > w.priority or (r.priority == w.priority and r.tie > w.tie):
            worst = k
    return worst


@splice
def schedule_running(e, cfg, c, rows, budget, threshold):
    """Returns (budget left, preemptions)."""
    preempted = 0
    i = 0
    while i < c.running and budget > 0:
        s = e.running[i]
        slot = e.slots[s]
        if slot.placeholders > 0 and slot.computed + 2 - slot.placeholders >= slot.max_tokens:
            i += 1
            continue
        n = slot.num_tokens + slot.placeholders - slot.computed
        if 0 < threshold < n:
            n = threshold
        n = min(n, budget, cfg.max_model_len - slot.computed - 1)
        if n == 0:
            i += 1
            continue
        fits = grow(e, cfg, c, s, n)
        while not fits:
            at = c.running - 1
            if cfg.priority:
                at = least_important(e.reqs, e.slots, e.running, c)
            victim = e.running[at]
            if not may_preempt(e.host, e, victim):
                break
            remove_running(e.running, c, at)
            if cfg.priority:
                if at < i:
                    i -= 1
                budget += take_back_row(c, rows, victim)
            e.victims[preempted] = e.slots[victim].req
            preempted += 1
            preempt(e, cfg, c, victim, 0)
            if victim == s:
                break
            fits = grow(e, cfg, c, s, n)
        if not fits:
            break
        add_row(e.slots, c, rows, s, CONTINUED, n)
        budget -= n
        i += 1
    return budget, preempted


@inline
def step_duration(time, prefill, decode, context, attention):
    """Seconds a batch takes (see simkv/engine/step_time.py)."""
    if time.mode == 0 or prefill + decode == 0:
        return 0.0
    if time.mode == 1:
        return time.a + time.b * prefill + time.c * decode
    flops = time.flops_per_token * (prefill + decode) + time.flops_per_token_context * attention
    moved = time.weight_bytes + time.kv_bytes_per_token * context
    return time.overhead_s + max(flops / time.peak_flops, moved / time.bandwidth)


@kernel
def serve_waiting(host, native, simple, plain, e, cfg, c, rows, budget, threshold):
    """Admissions of this step, with or without a host tier (see offload/hooks.py)."""
    if plain is not None:
        return schedule_waiting(e, cfg, c, rows, budget, threshold)
    if host is not None:
        return serve(native, simple, host, e, cfg, c, rows, budget, threshold)
    return 0


@splice
def schedule(e, cfg, c, step):
    """One schedule() call. Fills ``e.rows[c.batch]`` and the step row; returns the batch's duration in seconds."""
    rows = e.rows[c.batch]
    c.rows = 0
    threshold = cfg.threshold if c.running + c.wait_len + num_held(e.host) > 1 else 0
    budget, preempted = schedule_running(e, cfg, c, rows, cfg.budget, threshold)
    admitted = 0
    if preempted == 0:
        admitted = serve_waiting(e.host, e.native, e.simple, e.plain, e, cfg, c, rows, budget, threshold)
    close_schedule(e.host, e.native, e.simple, e, cfg, c, rows)
    prefill, decode, context, attention = 0, 0, 0, 0.0
    for i in range(c.rows):
        row = rows[i]
        slot = e.slots[row.slot]
        slot.computed += row.n
        row.sampled = slot.computed >= slot.num_tokens + slot.placeholders
        context += slot.computed
        attention += row.n * (row.computed + 0.5 * row.n)
        if cfg.asynchronous:
            slot.in_flight += row.n
            slot.placeholders += row.sampled
        if row.kind == CONTINUED and row.n == 1 and row.computed >= slot.num_prompt:
            decode += 1
        else:
            prefill += row.n
        if cfg.log:
            emit(c, e.log, ev.SCHEDULED, 0, row.req, row.n)
    duration = step_duration(cfg, prefill, decode, context, attention)
    step.duration = duration
    step.prefill = prefill
    step.decode = decode
    step.admitted = admitted
    step.preempted = preempted
    c.preemptions += preempted
    c.tokens += prefill + decode
    return duration
