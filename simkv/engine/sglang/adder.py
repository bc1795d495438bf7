"""Which waiting requests enter the next prefill batch (managers/schedule_policy.py, PrefillAdder, and scheduler.py, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.budget import CONTINUE, MOST_NEW_TOKENS, NO_TOKEN, OTHER, add_row, budget_state, ceil_page, reachable, reserve
from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import NONE, RUNNING, SHORTEST_PREFILL
from simkv.engine.sglang.log import emit
from simkv.engine.sglang.policy import known_tokens, uncached_work
from simkv.engine.sglang.preempt import preempt_for
from simkv.engine.sglang.queue import clock, pages_of, waiting_at
from simkv.engine.sglang.tree import lock, match, unlocked_pages
from simkv.engine.sglang.unending import length_without_cache
from simkv.events import layout as ev


@splice
def limit_for_shorter(e, cfg, c, req):
    """shortest-prefill-first: tokens the chunk in progress may take, so that shorter waiting requests fit beside it; -1 = all."""
    if cfg.policy != SHORTEST_PREFILL or c.rem_chunk < 2 * cfg.page:
        return -1
    remaining = known_tokens(req) - req.prefix
    kept = 0
    for i in range(c.wait_len):
        work = uncached_work(e.reqs[waiting_at(e, c, i)])
        charge = ceil_page(cfg, work)
        if work >= remaining or kept + charge > c.rem_chunk - cfg.page:
            break
        kept += charge
    return (c.rem_chunk - kept) // cfg.page * cfg.page if kept > 0 else -1


@splice
def continue_chunk(e, cfg, c):
    """The request in chunks goes on; it is the chunked one until nothing of its prompt is left."""
    r = c.chunked
    req = e.reqs[r]
    limit = limit_for_shorter(e, cfg, c, req)
    room = c.rem_chunk
    left = np.int64(reachable(cfg, c) - c.total_offset)
    if min(room, left) > 0:
        room = min(room, left)
    if limit >= 0:
        room = min(room, limit)
    req.filled = known_tokens(req)
    missing = req.filled - req.prefix
    n = min(missing, room)
    c.batch_held = 1
    add_row(e, c, r, n)
    reserve(cfg, c, n, 0 if missing > room else min(req.max_new, MOST_NEW_TOKENS))
    if missing <= room:
        c.chunked = NONE


@splice
def select_length(e, cfg, c, r):
    """Tokens of a waiting request that may be computed in this batch, or -(1 + a refusal)."""
    req = e.reqs[r]
    missing = known_tokens(req) - req.prefix
    new_tokens = min(max(req.max_new - req.generated, 0), MOST_NEW_TOKENS)
    pinned = unlocked_pages(e.nodes, np.int64(req.last_node)) * cfg.page
    if missing + new_tokens + cfg.page >= reachable(cfg, c) - pinned - c.total_offset:
        return -1 - NO_TOKEN
    paged = ceil_page(cfg, missing)
    if cfg.chunk < 0:
        return -1 - OTHER if c.batch_n > 0 and paged >= c.rem_input else missing
    if paged <= c.rem_chunk:
        return missing
    if c.chunked >= 0 and cfg.policy == SHORTEST_PREFILL:
        return -1 - OTHER
    end = (req.prefix + c.rem_chunk // cfg.page * cfg.page) // cfg.page * cfg.page
    return end - req.prefix if end > req.prefix else -1 - OTHER


@splice
def admit(e, cfg, c, r, n):
    """Commit an admission: lock what was found, take a place in the batch."""
    req = e.reqs[r]
    lock(e, cfg, c, np.int64(req.last_node))
    req.lock = req.last_node
    add_row(e, c, r, n)
    whole = req.extend_end == known_tokens(req)
    if not whole:
        c.new_chunked = r
    reserve(cfg, c, n, min(req.max_new, MOST_NEW_TOKENS) if whole else 0)
    if req.preempted == 0:
        c.requests += 1
        c.queries += known_tokens(req)
        c.hits += req.prefix
        req.hit = req.prefix
        req.scheduled = clock(cfg, c)
    else:
        c.recompute_requests += 1
        c.recompute_queries += known_tokens(req)
        c.recompute_hits += req.prefix
    req.status = RUNNING
    c.running += 1
    c.wait_pages -= pages_of(cfg, req)
    if cfg.log:
        emit(c, e.log, ev.ADMITTED if req.preempted == 0 else ev.RESUMED, 0, r, req.prefix)


@kernel
def add_one(e, cfg, c, r):
    """Try to admit a waiting request. Returns the state of the budgets, or the refusal."""
    req = e.reqs[r]
    known = known_tokens(req)
    pages, node = match(e, cfg, c, np.int64(req.first_run), np.int64(req.namespace), (known - 1) // cfg.page)
    req.prefix = pages * cfg.page
    req.matched = min(req.prefix, known - 1)
    req.protected = pages
    req.last_node = node
    req.filled = known
    if cfg.prefill_max_requests >= 0 and c.batch_n >= cfg.prefill_max_requests:
        return OTHER
    n = length_without_cache(e, cfg, c, r) if req.ignore_eos and not cfg.caching else select_length(e, cfg, c, r)
    if n < 0:
        return -1 - n
    admit(e, cfg, c, r, n)
    return budget_state(cfg, c)


@splice
def scan_waiting(e, cfg, c):
    """Admit from the head of the queue until something is refused. Returns how many were admitted."""
    i = 0
    while i < c.wait_len:
        if budget_state(cfg, c) == OTHER:
            break
        r = np.int64(waiting_at(e, c, i))
        if c.batch_n >= min(cfg.max_running - c.in_running, c.free_slots + c.batch_held):
            c.full = 1
        if c.full and not (cfg.preemption and preempt_for(e, cfg, c, r)):
            break
        before = c.batch_n
        state = add_one(e, cfg, c, r)
        i += c.batch_n > before
        if state != CONTINUE:
            if state == NO_TOKEN:
                c.full = c.batch_n > 0 or c.in_running > 0
            break
    c.wait_head += i
    c.wait_len -= i
    return i
