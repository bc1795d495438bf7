"""Which worker was the latest to hold a block, for indexes that keep only so many. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.fleet.kv.compiled import inline, kernel
from simkv.fleet.kv.table import drop, place_of
from simkv.jit import record

U = np.uint64


class Orders(NamedTuple):
    """Blocks that two workers hold, or more: which came last. A table like the other."""

    rows: Any  # records[R + 1] of order_of_workers
    places: Any
    meta: Any


def order_of_workers(workers: int, most: int) -> np.dtype[Any]:
    """A block's key and its ``most`` latest workers, +1, the last one first; 0 where there are fewer."""
    return record(("key", "u8"), ("latest", "u1" if workers < 255 else "u2", (most,)))


@inline
def word_of(w):
    return w >> 6


@inline
def bit_of(w):
    return U(1) << U(w & 63)


@kernel
def begin_order(ix, o, x):
    """One worker holds the block at place ``x``, and another will: it was the latest so far."""
    row, v = ix.rows[x], 0
    while row.holders[word_of(v)] & bit_of(v) == 0:
        v += 1
    order = o.rows[place_of(o, row.key)]
    order.key = row.key
    order.latest[0] = v + 1
    o.meta[0].live += 1


@kernel
def keep_latest(ix, o, x, w):
    """Worker ``w`` is the latest to hold a block; the one that came first is forgotten if there are too many."""
    latest = o.rows[place_of(o, ix.rows[x].key)].latest
    i = 0
    while i < latest.size - 1 and latest[i] != w + 1 and latest[i] != 0:
        i += 1
    lost = np.int64(latest[i]) - 1
    if lost >= 0 and lost != w:
        ix.rows[x].holders[word_of(lost)] &= ~bit_of(lost)
    while i > 0:
        latest[i] = latest[i - 1]
        i -= 1
    latest[0] = w + 1


@kernel
def leave_latest(ix, o, x, w):
    """Worker ``w`` holds the block no more."""
    latest, n = o.rows[place_of(o, ix.rows[x].key)].latest, 0
    for i in range(latest.size):
        if latest[i] != w + 1:
            latest[n] = latest[i]
            n += 1
    for i in range(n, latest.size):
        latest[i] = 0


@inline
def end_order(ix, o, x):
    """One worker is left."""
    drop(o, place_of(o, ix.rows[x].key))
