"""The prefix tree as Ray Serve keeps it: a request stamps its whole path, and whatever has the oldest stamp goes together.

ray 2.60.0, python/ray/llm/_internal/serve/routing_policies/prefix_aware/prefix_tree.py.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.compiled import entry
from simkv.fleet.routing.prefix_tree import ABSENT, NOBODY, ROOT, PrefixTree, add_leaf, has_room, hold, let_go, split, walk
from simkv.fleet.routing.sequence import Sequences


@entry
def place_timed(nodes, stamps, table, state, sizes, prompts, pieces, written, req, worker, stamp):
    """Note that a request goes to a worker. Returns False, and has done nothing, if there is no room."""
    t, s = PrefixTree(nodes, stamps, table, state, sizes), Sequences(prompts, pieces, written)
    if not has_room(t):
        return False
    c = t.state[0]
    if c.req != req:
        walk(t, s, req, 1)
    n, pos, upto = np.int64(c.full), np.int64(c.matched), np.int64(s.prompts[req].units)
    if c.partial != 0:
        n = split(t, s, np.int64(c.partial), pos, 1)
    above = n
    while above != ROOT:
        hold(t, above, worker)
        t.stamps[above, worker] = stamp
        above = np.int64(t.nodes[above].parent)
    if pos < upto:
        add_leaf(t, s, n, req, pos, upto, worker, stamp, 1)
    c.req = NOBODY
    return True


@entry
def _drop(nodes, stamps, table, state, sizes, worker, newest):
    t = PrefixTree(nodes, stamps, table, state, sizes)
    for n in range(1, t.state[0].used):
        if t.stamps[n, worker] != ABSENT and t.stamps[n, worker] <= newest:
            let_go(t, n, worker)
    t.state[0].req = NOBODY


def evict_oldest(t: PrefixTree, worker: int, units: float) -> None:
    """The worker loses all nodes of its oldest stamp, and again, until so many units are gone or it holds none."""
    used = int(t.state["used"][0])
    held = np.flatnonzero(t.stamps[1:used, worker] != ABSENT) + 1
    held = held[np.argsort(t.stamps[held, worker], kind="stable")]
    gone = np.cumsum(t.nodes["end"][held] - t.nodes["begin"][held], dtype=np.int64)
    if units > 0 and len(held):
        last = held[min(int(np.searchsorted(gone, units)), len(held) - 1)]
        _drop(*t, worker, int(t.stamps[last, worker]))
