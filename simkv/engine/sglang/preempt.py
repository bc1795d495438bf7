"""Priority scheduling: running requests thrown back for a much more important one (PrefillAdder.preempt_to_schedule, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.budget import MOST_NEW_TOKENS, expected_tokens, reachable
from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import RUNNING
from simkv.engine.sglang.life import throw_back


@kernel
def less_important(cfg, a, b):
    """Whether running request ``a`` is thrown back before ``b``: less important, then later in the queue."""
    if a.priority != b.priority:
        return (a.priority < b.priority) == (cfg.low_first == 0)
    return a.entered > b.entered


@splice
def sort_by_importance(e, cfg, c):
    """Running requests into ``sorted``, least important first. Returns how many."""
    n = 0
    for i in range(c.in_running):
        r = e.running[i]
        if e.reqs[r].status != RUNNING:
            continue
        k = n
        while k > 0 and less_important(cfg, e.reqs[r], e.reqs[e.sorted[k - 1]]):
            e.sorted[k] = e.sorted[k - 1]
            k -= 1
        e.sorted[k] = r
        n += 1
    return n


@kernel
def preempt_for(e, cfg, c, r):
    """Throw back as many as make room for the waiting request. Returns whether that was possible.

    SGLang puts them into the queue again in the order of a set, which is no order; here it is that of the running list.
    """
    req = e.reqs[r]
    missing = req.filled - req.prefix + min(req.max_new, MOST_NEW_TOKENS) - (reachable(cfg, c) - c.total_offset)
    n = sort_by_importance(e, cfg, c)
    victims = 0
    while victims < n:
        other = e.reqs[e.sorted[victims]]
        more = other.priority - req.priority if cfg.low_first else req.priority - other.priority
        if more <= cfg.preemption_threshold:
            break
        victims += 1
        missing -= expected_tokens(cfg, c, other)
        if missing <= 0:
            break
    if victims == 0 or missing > 0:
        return False
    for i in range(victims):
        e.reqs[e.sorted[i]].deferred = -1
    kept, left = 0, c.in_running
    for i in range(c.in_running):
        x = np.int64(e.running[i])
        if e.reqs[x].deferred != -1:
            e.running[kept] = x
            kept += 1
            continue
        e.reqs[x].deferred = 0
        c.total_offset -= expected_tokens(cfg, c, e.reqs[x])
        left -= 1
        throw_back(e, cfg, c, x, left)
        e.thrown_back[c.retracted] = x
        c.retracted += 1
    c.in_running = kept
    return True
