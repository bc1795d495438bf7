"""Admission of ignore_eos requests while the radix cache is off (PrefillAdder.add_one_req_ignore_eos, 0.5.23).

Their lengths are known, so it is simulated whether all of them can end, the shortest rest first.
"""

from __future__ import annotations

from simkv.engine.sglang.budget import NO_TOKEN, OTHER, ceil_page, reachable
from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.policy import known_tokens

KEPT_TOKENS = 1
"""Left free for every request (IGNORE_EOS_RESERVE_TOKENS)."""


@kernel
def add_state(e, c, req, at):
    """Insert a request's state before position ``at``; -1 finds the place as SGLang does, never behind the last."""
    left = req.max_new * (1.0 if req.ignore_eos else c.ratio) - req.generated
    if left <= 0:
        return
    if at < 0:
        at = 0
        while at < c.states - 1 and left > e.states[at].left:
            at += 1
    for k in range(c.states, at, -1):
        e.states[k].left = e.states[k - 1].left
        e.states[k].occupied = e.states[k - 1].occupied
    e.states[at].left = left
    e.states[at].occupied = known_tokens(req)
    c.states += 1


@kernel
def add_sorted(e, c, req):
    """For the first states of a pass: a stable sort by what is left."""
    left = req.max_new * (1.0 if req.ignore_eos else c.ratio) - req.generated
    at = c.states
    while at > 0 and left < e.states[at - 1].left:
        at -= 1
    add_state(e, c, req, at)


@splice
def collect_states(e, c, req):
    if c.states >= 0:
        add_state(e, c, req, -1)
        return
    c.states = 0
    add_sorted(e, c, req)
    for i in range(c.in_running):
        add_sorted(e, c, e.reqs[e.running[i]])
    for i in range(c.batch_n):
        add_sorted(e, c, e.reqs[e.batch[i].req])


@splice
def length_without_cache(e, cfg, c, r):
    """Tokens of the request that may be computed in this batch, or -(1 + a refusal)."""
    req = e.reqs[r]
    missing = known_tokens(req) - req.prefix
    paged = ceil_page(cfg, missing) + cfg.page
    room = reachable(cfg, c)
    if paged > min(room - c.current_offset, room - c.total_offset):
        return -1 - NO_TOKEN
    collect_states(e, c, req)
    free = room - c.current_offset - paged
    for i in range(c.states):
        others = c.states - i
        if free - e.states[i].left * others <= KEPT_TOKENS * others:
            return -1 - NO_TOKEN
        free += e.states[i].occupied
    if cfg.chunk < 0 or missing <= c.rem_chunk:
        return missing
    return c.rem_chunk if c.rem_chunk > 0 else -1 - OTHER
