"""schedule(): which requests compute how many tokens in this step (vllm/v1/core/sched/scheduler.py, 0.32.0).

Running requests first, in list order; the waiting queue only if nothing was preempted. Preemption recomputes.
"""

from __future__ import annotations

from simkv.engine.contract import RUNNING, WAITING
from simkv.engine.vllm.compiled import inline, kernel, splice
from simkv.engine.vllm.keys import block_keys
from simkv.engine.vllm.layout import CONTINUED, NEW, RESUMED
from simkv.engine.vllm.lookup import find_hit, no_hit
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, head, pop_head, push_front
from simkv.engine.vllm.slots import admit_blocks, grow, release_all
from simkv.events import layout as ev


@inline
def free_slot(free_slots, c, s):
    free_slots[c.free_slots] = s
    c.free_slots += 1


@kernel
def preempt(e, cfg, c, s, drop):
    """Free the blocks of slot ``s`` and put its request at the front of the queue, to be computed again.

    Output of it still in flight (async scheduling) is *stale*: taken in later, or dropped after a cache reset.
    """
    slot = e.slots[s]
    r = slot.req
    req = e.reqs[r]
    release_all(e, cfg, c, s)
    req.generated = slot.num_tokens - slot.num_prompt
    req.last_token = slot.last_time
    req.drop = drop or (req.drop and req.stale > 0)
    req.stale = slot.in_flight
    req.preempted += 1
    req.status = WAITING
    req.slot = -1
    free_slot(e.free_slots, c, s)
    push_front(e.reqs, e.queue, cfg, c, r)
    if cfg.log:
        emit(c, e.log, ev.PREEMPTED, 0, r, 0)


@inline
def add_row(slots, c, rows, s, kind, n):
    row = rows[c.rows]
    row.req = slots[s].req
    row.slot = s
    row.kind = kind
    row.computed = slots[s].computed
    row.n = n
    c.rows += 1


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


@kernel
def prepare_head(e, cfg, c, r):
    """Slot with the chain keys of the request at the head of the queue, kept while it cannot be admitted."""
    req = e.reqs[r]
    if c.head_req != r:
        if c.head_slot < 0:
            c.free_slots -= 1
            c.head_slot = e.free_slots[c.free_slots]
        c.head_req = r
        slot = e.slots[c.head_slot]
        slot.req = r
        slot.num_prompt = req.num_prompt
        slot.max_tokens = req.num_prompt + req.num_output
        slot.last_tokens = min(slot.max_tokens, cfg.max_model_len)
        if cfg.caching:
            upto = slot.last_tokens // cfg.hash_block
            block_keys(req, e.runs, e.tokens, e.images, cfg.hash_block, upto, e.keys[c.head_slot])
    slot = e.slots[c.head_slot]
    slot.num_tokens = slot.num_prompt + req.generated
    slot.computed = 0
    slot.placeholders = 0
    slot.in_flight = req.stale
    slot.last_batch = -2
    slot.last_time = req.last_token
    return c.head_slot


@inline
def count_lookup(cfg, c, first_time, queries, hits):
    """PrefixCacheStats (vllm/v1/metrics/stats.py): tokens; recomputed requests apart since 0.13."""
    if first_time or not cfg.split_preempted:
        c.requests += 1
        c.queries += queries
        c.hits += hits
    else:
        c.recompute_requests += 1
        c.recompute_queries += queries
        c.recompute_hits += hits


@inline
def runs_adapter(adapters, c, lora):
    return adapters[lora] == c.stamp


@inline
def run_adapter(adapters, c, lora):
    if adapters[lora] != c.stamp:
        adapters[lora] = c.stamp
        c.loras += 1


@inline
def must_wait(adapters, cfg, c, req):
    """Passed over without blocking those behind: stale output pending, or one adapter too many."""
    if req.stale > 0 and not req.drop:
        return True
    return cfg.max_loras > 0 and req.lora >= 0 and c.loras == cfg.max_loras and not runs_adapter(adapters, c, req.lora)


@splice
def schedule_waiting(e, cfg, c, rows, budget, threshold):
    """Admit from the head of the queue until something does not fit. Returns the number admitted."""
    c.stamp += 1
    c.loras = 0
    if cfg.max_loras > 0:
        for i in range(c.rows):
            lora = e.reqs[rows[i].req].lora
            if lora >= 0:
                run_adapter(e.adapters, c, lora)
    skipped, admitted = 0, 0
    while budget > 0 and c.wait_len > 0 and c.running < cfg.max_running:
        r = head(e.queue, cfg, c)
        req = e.reqs[r]
        if must_wait(e.adapters, cfg, c, req):
            pop_head(e.reqs, e.queue, cfg, c)
            e.queue[skipped].skipped = r
            skipped += 1
            continue
        s = prepare_head(e, cfg, c, r)
        slot = e.slots[s]
        reads = cfg.caching and not req.skip_cache
        hit = find_hit(e, cfg, c, s, slot.num_tokens) if reads else no_hit(e.groups, cfg, c)
        slot.junction = c.junction
        if reads and cfg.stats_at_lookup:
            count_lookup(cfg, c, req.preempted == 0, slot.num_tokens, hit)
        n = slot.num_tokens - hit
        if 0 < threshold < n:
            n = threshold
        if not cfg.chunked and n > budget:
            break
        n = min(n, budget)
        if not admit_blocks(e, cfg, c, s, hit, n):
            break
        if reads and not cfg.stats_at_lookup:
            count_lookup(cfg, c, req.preempted == 0, slot.num_tokens, hit)
        pop_head(e.reqs, e.queue, cfg, c)
        c.head_req = -1
        c.head_slot = -1
        slot.computed = hit
        e.running[c.running] = s
        c.running += 1
        new = req.status == WAITING and req.preempted == 0
        if new:
            req.hit = hit
            req.scheduled = clock(cfg, c)
        req.status = RUNNING
        req.slot = s
        if cfg.log:
            emit(c, e.log, ev.ADMITTED if new else ev.RESUMED, 0, r, hit)
        if cfg.max_loras > 0 and req.lora >= 0:
            run_adapter(e.adapters, c, req.lora)
        add_row(e.slots, c, rows, s, NEW if new else RESUMED, n)
        budget -= n
        admitted += 1
    for k in range(skipped - 1, -1, -1):
        push_front(e.reqs, e.queue, cfg, c, e.queue[k].skipped)
    return admitted


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


@splice
def schedule(e, cfg, c, step):
    """One schedule() call. Fills ``e.rows[c.batch]`` and the step row; returns the batch's duration in seconds."""
    rows = e.rows[c.batch]
    c.rows = 0
    threshold = cfg.threshold if c.running + c.wait_len > 1 else 0
    budget, preempted = schedule_running(e, cfg, c, rows, cfg.budget, threshold)
    admitted = 0
    if preempted == 0:
        admitted = schedule_waiting(e, cfg, c, rows, budget, threshold)
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
