"""Which workers hold which blocks: a table of chain keys, each with a set of workers. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.engine.contract import KV_CLEARED, KV_REMOVED, KV_STORED
from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.orders import begin_order, bit_of, end_order, keep_latest, leave_latest, word_of
from simkv.fleet.kv.table import drop, fetch, is_full, place_of
from simkv.jit import record

U = np.uint64
REMOVED, STORED, CLEARED = KV_REMOVED, KV_STORED, KV_CLEARED
"""``KVEvents.kinds``."""
AHEAD = 16
"""Events whose places are fetched before their turn: a table of millions of blocks is in no cache."""


class Index(NamedTuple):
    """A table (table.py) of blocks and who holds them. A block that nobody holds has no row. Entries take ``*index`` (see compiled.py).

    What there is about a block stands in one row, so that an event reaches into memory once. Where only so many workers of a block
    are kept, those of a block that several hold have an order; it stands in a table of its own, which is small.
    """

    rows: Any  # records[R + 1] of block_and_holders
    places: Any
    meta: Any
    scratch: Any  # i8[3, 64] intervals still to look into
    orders: Any  # Orders; None where all workers are kept


def block_and_holders(workers: int) -> np.dtype[Any]:
    """A block's key and its workers, a bit for each. Their number is part of the type, so that compiled code knows it."""
    return record(("key", "u8"), ("holders", "u8", (-(-workers // 64),)))


@inline
def holders_of(ix, x):
    """How many hold the block at place ``x``: none, one, or more (2)."""
    n, holders = 0, ix.rows[x].holders
    for i in range(holders.size):
        word = holders[i]
        if word != 0:
            n += 1 if word & (word - U(1)) == 0 else 2
    return min(n, 2)


@inline
def hold(ix, orders, x, w):
    """Worker ``w`` holds the block at place ``x``. Whether there was room for that."""
    if orders is not None:
        before, held = holders_of(ix, x), ix.rows[x].holders[word_of(w)] & bit_of(w) != 0
        if before == 1 and not held:
            if is_full(orders):
                return False
            begin_order(ix, orders, x)
        if before > 1 or (before == 1 and not held):
            keep_latest(ix, orders, x, w)
            ix.rows[x].holders[word_of(w)] |= bit_of(w)
            if holders_of(ix, x) == 1:
                end_order(ix, orders, x)
    ix.rows[x].holders[word_of(w)] |= bit_of(w)
    return True


@inline
def lose(ix, orders, x, w):
    """Worker ``w``, which holds the block at place ``x``, does so no more. Whether its row went."""
    ix.rows[x].holders[word_of(w)] &= ~bit_of(w)
    left = holders_of(ix, x)
    if left == 0:
        drop(ix, x)
    elif orders is not None:
        if left == 1:
            end_order(ix, orders, x)
        else:
            leave_latest(ix, orders, x, w)
    return left == 0


@kernel
def apply_from(ix, w, kinds, keys, first):
    """A worker's events from ``first`` on. Returns where it stopped: the end, or where a table is full."""
    rows, word, bit = ix.rows, word_of(w), bit_of(w)
    for i in range(first, min(first + AHEAD, keys.size)):
        fetch(ix, keys[i])
    for i in range(first, kinds.size):
        if i + AHEAD < kinds.size:
            fetch(ix, keys[i + AHEAD])
        if kinds[i] == CLEARED:
            forget_worker(ix, w)
            continue
        x = place_of(ix, keys[i])
        if kinds[i] == STORED:
            if rows[x].key == 0:
                if is_full(ix):
                    return i
                rows[x].key = keys[i]
                ix.meta[0].live += 1
            if not hold(ix, ix.orders, x, w):
                return i
        elif rows[x].holders[word] & bit != 0:
            lose(ix, ix.orders, x, w)
    return kinds.size


@entry
def apply_events(rows, places, meta, scratch, orders, w, kinds, keys, first):
    """Python's way into ``apply_from``."""
    return apply_from(Index(rows, places, meta, scratch, orders), w, kinds, keys, first)


@kernel
def forget_worker(ix, w):
    """The worker holds nothing any more."""
    word, bit = word_of(w), bit_of(w)
    x = 0
    while x < ix.places:
        if ix.rows[x].holders[word] & bit == 0 or not lose(ix, ix.orders, x, w):
            x += 1  # otherwise another row may have moved here


@entry
def forget(ix, w):
    """Python's way into ``forget_worker``."""
    forget_worker(ix, w)
