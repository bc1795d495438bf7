"""The prefix tree of requests that come as token ids: whole pages only, and every node on the way is touched.

smg 1.13.0, crates/kv_index/src/token_tree.rs: a look-up touches, from the root down, some holder of every node it passes (the one
remembered, else any), an insertion its worker; one touch in 16 is remembered as the node's holder.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.compiled import entry, kernel
from simkv.fleet.routing.prefix_tree import ABSENT, NOBODY, ROOT, PrefixTree, add_leaf, has_room, hold, split, walk
from simkv.fleet.routing.sequence import Sequences

REMEMBER_EVERY = 16


@kernel
def touch(t, n, worker, stamp):
    hold(t, n, worker)
    t.stamps[n, worker] = stamp
    if stamp % REMEMBER_EVERY == 0:
        t.nodes[n].owner = worker


@kernel
def some_holder(t, n):
    owner = np.int64(t.nodes[n].owner)
    if owner != NOBODY and t.stamps[n, owner] != ABSENT:
        return owner
    for w in range(t.stamps.shape[1]):
        if t.stamps[n, w] != ABSENT:
            return np.int64(w)
    return np.int64(NOBODY)


@kernel
def touch_path(t, n, worker):
    """Touch all nodes down to ``n``, for a worker or (NOBODY) for some holder of each."""
    c = t.state[0]
    above, depth = n, 0
    while above != ROOT:
        above = np.int64(t.nodes[above].parent)
        depth += 1
    stamp = c.clock + depth
    c.clock = stamp
    while n != ROOT:
        stamp -= 1
        touch(t, n, some_holder(t, n) if worker == NOBODY else worker, stamp)
        n = np.int64(t.nodes[n].parent)


@kernel
def touch_next(t, n, worker):
    c = t.state[0]
    touch(t, n, worker, c.clock)
    c.clock += 1


@entry
def place_pages(nodes, stamps, table, state, sizes, prompts, pieces, written, req, worker, page):
    """``prefix_tree.place`` for pages, after a look-up. Returns False, and has done nothing, if there is no room."""
    t, s = PrefixTree(nodes, stamps, table, state, sizes), Sequences(prompts, pieces, written)
    if not has_room(t):
        return False
    c = t.state[0]
    if c.req != req:
        walk(t, s, req, page)
    full, partial, pos = np.int64(c.full), np.int64(c.partial), np.int64(c.matched)
    upto = np.int64(s.prompts[req].units) // page * page
    touch_path(t, full, NOBODY)
    if partial != 0:
        touch_next(t, partial, some_holder(t, partial))
    touch_path(t, full, worker)
    n = full
    if partial != 0:
        n = split(t, s, partial, pos, page)
    if pos < upto:
        leaf = add_leaf(t, s, n, req, pos, upto, worker, c.clock, page)
        t.nodes[leaf].owner = NOBODY
        c.clock += 1
        touch_next(t, leaf, worker)
    if partial != 0:
        touch_next(t, n, worker)
    c.req = NOBODY
    return True
