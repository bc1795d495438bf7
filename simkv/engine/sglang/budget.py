"""The budgets of one prefill pass (managers/schedule_policy.py, PrefillAdder, and mem_cache/prefill_budget.py, 0.5.23).

``total_offset`` is what running and admitted requests may still take, ``current_offset`` what the batch takes now; both are
set against the free list plus what could be evicted.
"""

from __future__ import annotations

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.pages import available

CONTINUE, NO_TOKEN, OTHER = range(3)
MOST_NEW_TOKENS = 4096
"""Longer outputs are expected to end early (CLIP_MAX_NEW_TOKENS)."""


@inline
def ceil_page(cfg, tokens):
    return (tokens + cfg.page - 1) // cfg.page * cfg.page


@inline
def reachable(cfg, c):
    """Tokens in the free list or evictable."""
    return available(cfg, c) + c.evictable * cfg.page


@kernel
def expected_tokens(cfg, c, req):
    """What a running request is expected to take still."""
    ratio = 1.0 if req.ignore_eos else c.ratio
    return min(req.max_new - req.generated, MOST_NEW_TOKENS) * ratio


@splice
def begin_budget(e, cfg, c):
    mixed = c.in_running if cfg.mixed else 0
    c.rem_input = cfg.max_prefill - mixed
    c.rem_chunk = cfg.chunk - mixed if cfg.chunk >= 0 else 0
    expected = 0.0
    for i in range(c.in_running):
        expected += expected_tokens(cfg, c, e.reqs[e.running[i]])
    c.total_offset = mixed + expected
    c.current_offset = mixed


@kernel
def budget_state(cfg, c):
    room = reachable(cfg, c)
    if room - c.total_offset <= 0 or room - c.current_offset <= 0:
        return NO_TOKEN
    if c.rem_input <= 0 or (cfg.chunk >= 0 and c.rem_chunk <= 0):
        return OTHER
    return CONTINUE


@kernel
def reserve(cfg, c, n, new_tokens):
    now = ceil_page(cfg, n)
    c.total_offset += now + cfg.page + new_tokens
    c.current_offset += now + cfg.page
    c.rem_input -= now
    c.rem_chunk -= now


@inline
def add_row(e, c, r, n):
    req = e.reqs[r]
    req.extend_end = req.prefix + n
    row = e.batch[c.batch_n]
    row.req = r
    row.prefix = req.prefix
    row.n = n
    row.decode = 0
    c.batch_n += 1
