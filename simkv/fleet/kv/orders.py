"""Which worker was the latest to hold a block, for indexes that keep only so many. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.fleet.kv.compiled import inline, kernel
from simkv.fleet.kv.table import drop, place_of

U = np.uint64


class Orders(NamedTuple):
    """Blocks that two workers hold, or more: which came last. A table like the other."""

    rows: Any  # u8[R + 1, 1 + what the latest need]: the key first
    latest: Any  # u1 or u2 view of rows, ``lanes`` columns for one of its; behind the key: workers +1, the last one first
    places: Any
    meta: Any
    lanes: Any  # int
    most: Any  # int: how many are kept


@inline
def word_of(w):
    return 1 + (w >> 6)


@inline
def bit_of(w):
    return U(1) << U(w & 63)


@kernel
def begin_order(ix, o, x):
    """One worker holds the block at place ``x``, and another will: it was the latest so far."""
    key, v = ix.rows[x, 0], 0
    while ix.rows[x, word_of(v)] & bit_of(v) == 0:
        v += 1
    y = place_of(o, key)
    o.rows[y, 0] = key
    o.latest[y, o.lanes] = v + 1
    o.meta[0].live += 1


@kernel
def keep_latest(ix, o, x, w):
    """Worker ``w`` is the latest to hold a block; the one that came first is forgotten if there are too many."""
    latest = o.latest[place_of(o, ix.rows[x, 0]), o.lanes : o.lanes + o.most]
    i = 0
    while i < latest.size - 1 and latest[i] != w + 1 and latest[i] != 0:
        i += 1
    lost = np.int64(latest[i]) - 1
    if lost >= 0 and lost != w:
        ix.rows[x, word_of(lost)] &= ~bit_of(lost)
    while i > 0:
        latest[i] = latest[i - 1]
        i -= 1
    latest[0] = w + 1


@kernel
def leave_latest(ix, o, x, w):
    """Worker ``w`` holds the block no more."""
    latest, n = o.latest[place_of(o, ix.rows[x, 0]), o.lanes : o.lanes + o.most], 0
    for i in range(latest.size):
        if latest[i] != w + 1:
            latest[n] = latest[i]
            n += 1
    for i in range(n, latest.size):
        latest[i] = 0


@inline
def end_order(ix, o, x):
    """One worker is left."""
    drop(o, place_of(o, ix.rows[x, 0]))
