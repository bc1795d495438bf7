"""The order of the waiting queue (managers/schedule_policy.py, SchedulePolicy.calc_priority, 0.5.23).

Cache-aware policies match every waiting request first, which touches and splits the tree. lpm and hrrn become fcfs when
more than 128 requests wait.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import DFS_WEIGHT, FCFS, HRRN, LOF, LPM, LRU, RANDOM, SHORTEST_PREFILL
from simkv.engine.sglang.queue import waiting_at
from simkv.engine.sglang.shuffle import shuffle
from simkv.engine.sglang.tree import match
from simkv.engine.sglang.weights import order_by_weight

MATCHED_AT_MOST = 128
TOUCH_EVERY = 32
IN_BATCH_TOKENS = 32
"""First tokens that make a waiting request a twin of an earlier one, if the tree knows no more of it than that."""


@kernel
def known_tokens(req):
    return np.int64(req.num_prompt + req.generated)


@splice
def match_waiting(e, cfg, c, r):
    """Match all of a waiting request's tokens, as a policy does; the match at admission leaves out the last."""
    req = e.reqs[r]
    known = known_tokens(req)
    pages, node = match(e, cfg, c, np.int64(req.first_run), np.int64(req.namespace), known // cfg.page)
    req.prefix = pages * cfg.page
    req.matched = min(req.prefix, known - 1)
    req.last_node = node


@splice
def match_all(e, cfg, c):
    """Match the whole queue in its present order, and defer those whose first tokens an earlier one will compute."""
    c.passes += 1
    for i in range(c.wait_len):
        r = waiting_at(e, c, i)
        match_waiting(e, cfg, c, r)
        req = e.reqs[r]
        req.deferred = 0
        if req.prefix <= IN_BATCH_TOKENS and req.head >= 0 and known_tokens(req) >= IN_BATCH_TOKENS:
            req.deferred = e.heads[req.head] == c.passes
            e.heads[req.head] = c.passes


@kernel
def uncached_work(req):
    return max(1, known_tokens(req) - req.matched)


@kernel
def response_ratio(c, req):
    """Tokens waited per token still to compute; -1 where nothing is to be computed."""
    uncached = max(0, req.num_prompt - req.matched)
    if uncached == 0:
        return -1.0
    return max(0, c.processed - req.arrival_processed) / uncached


@kernel
def ranks_before(cfg, c, policy, a, b):
    """Whether request ``a`` goes before ``b`` under a policy; neither before the other keeps their order."""
    if policy in (FCFS, LOF):
        if cfg.priority and a.priority != b.priority:
            return (a.priority < b.priority) == (cfg.low_first != 0)
        if policy == LOF:
            return a.max_new > b.max_new
        return a.entered < b.entered
    if a.deferred != b.deferred:
        return a.deferred < b.deferred
    if policy == LPM:
        return a.deferred == 0 and a.matched > b.matched
    if policy == SHORTEST_PREFILL:
        x, y = uncached_work(a), uncached_work(b)
        return x < y or (x == y and a.entered < b.entered)
    if a.deferred == 0:
        x, y = response_ratio(c, a), response_ratio(c, b)
        if x != y:
            return x < 0 or (y >= 0 and x > y)
    return a.name_rank < b.name_rank


@splice
def sort_waiting(e, cfg, c, policy):
    """Insertion sort: the queue is nearly in order from the pass before."""
    for i in range(c.wait_head + 1, c.wait_head + c.wait_len):
        r = e.queue[i].waiting
        k = i
        while k > c.wait_head and ranks_before(cfg, c, policy, e.reqs[r], e.reqs[e.queue[k - 1].waiting]):
            e.queue[k].waiting = e.queue[k - 1].waiting
            k -= 1
        e.queue[k].waiting = r


@splice
def touch_waiting(e, cfg, c):
    """Every 32 passes the prefixes of the first 128 are touched, the head's last, so that it is evicted last."""
    if c.touches % TOUCH_EVERY == 0:
        for i in range(min(c.wait_len, MATCHED_AT_MOST) - 1, -1, -1):
            req = e.reqs[waiting_at(e, c, i)]
            match(e, cfg, c, np.int64(req.first_run), np.int64(req.namespace), known_tokens(req) // cfg.page)
    c.touches += 1


@kernel
def calc_priority(e, cfg, c):
    """Put the waiting queue in order for one scheduling pass."""
    policy = cfg.policy
    if (policy in (LPM, HRRN)) and c.wait_len > MATCHED_AT_MOST:
        policy = FCFS
    aware = policy in (LPM, HRRN, DFS_WEIGHT, SHORTEST_PREFILL)
    if aware:
        match_all(e, cfg, c)
    if policy == DFS_WEIGHT:
        order_by_weight(e, c)
    elif policy == RANDOM:
        shuffle(e, cfg, c)
    elif aware or policy == LOF or (cfg.policy == FCFS and cfg.priority):
        sort_waiting(e, cfg, c, policy)
    if not aware and c.wait_len > 0 and cfg.eviction == LRU and cfg.caching:
        touch_waiting(e, cfg, c)
    c.ordered = 1
    if cfg.keep_order:
        c.ordered_n = c.wait_len
        for i in range(c.wait_len):
            e.ordered[i] = waiting_at(e, c, i)
