"""Admission: the waiting queue's head, its prefix hit, and whether it fits (vllm/v1/core/sched/scheduler.py, 0.32.0)."""

from __future__ import annotations

from simkv.engine.contract import RUNNING, WAITING
from simkv.engine.vllm.compiled import inline, kernel, splice
from simkv.engine.vllm.keys import block_keys
from simkv.engine.vllm.layout import NEW, RESUMED
from simkv.engine.vllm.lookup import find_hit, no_hit
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, head, pop_head, push_front
from simkv.engine.vllm.slots import admit_blocks
from simkv.events import layout as ev


@inline
def add_row(slots, c, rows, s, kind, n):
    row = rows[c.rows]
    row.req = slots[s].req
    row.slot = s
    row.kind = kind
    row.computed = slots[s].computed
    row.n = n
    c.rows += 1


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
        if cfg.hashing:
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
