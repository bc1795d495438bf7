"""Which workers hold which blocks: a table of chain keys, each with a set of workers. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.engine.contract import KV_CLEARED, KV_REMOVED, KV_STORED
from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.orders import begin_order, bit_of, end_order, keep_latest, leave_latest, word_of
from simkv.fleet.kv.table import drop, fetch, is_full, place_of

U = np.uint64
REMOVED, STORED, CLEARED = KV_REMOVED, KV_STORED, KV_CLEARED
"""``KVEvents.kinds``."""
AHEAD = 16
"""Events whose places are fetched before their turn: a table of millions of blocks is in no cache."""


class Index(NamedTuple):
    """An open addressing table of S = 2^k places, W workers, w = ceil(W / 64). A block that nobody holds has no row.
    Entries take ``*index`` (see compiled.py).

    What there is about a block stands in one row, so that an event reaches into memory once: its key (0: an empty place), and the
    workers that hold it in w words. The last row is always empty. Where only so many workers of a block are kept, those of a block
    that several hold have an order; it stands in a table of its own, which is small.
    """

    rows: Any  # u8[R + 1, 1 + w], of which the first S <= R are in use
    places: Any  # int: S
    words: Any  # int: w
    meta: Any  # META[1]
    scratch: Any  # i8[3, 64] intervals still to look into
    orders: Any  # Orders; None where all workers are kept


@inline
def holders_of(ix, x):
    """How many hold the block at place ``x``: none, one, or more (2)."""
    n = 0
    for i in range(1, 1 + ix.words):
        word = ix.rows[x, i]
        if word != 0:
            n += 1 if word & (word - U(1)) == 0 else 2
    return min(n, 2)


@inline
def hold(ix, orders, x, w):
    """Worker ``w`` holds the block at place ``x``. Whether there was room for that."""
    if orders is not None:
        before, held = holders_of(ix, x), ix.rows[x, word_of(w)] & bit_of(w) != 0
        if before == 1 and not held:
            if is_full(orders):
                return False
            begin_order(ix, orders, x)
        if before > 1 or (before == 1 and not held):
            keep_latest(ix, orders, x, w)
            ix.rows[x, word_of(w)] |= bit_of(w)
            if holders_of(ix, x) == 1:
                end_order(ix, orders, x)
    ix.rows[x, word_of(w)] |= bit_of(w)
    return True


@inline
def lose(ix, orders, x, w):
    """Worker ``w``, which holds the block at place ``x``, does so no more. Whether its row went."""
    ix.rows[x, word_of(w)] &= ~bit_of(w)
    left = holders_of(ix, x)
    if left == 0:
        drop(ix, x)
    elif orders is not None:
        if left == 1:
            end_order(ix, orders, x)
        else:
            leave_latest(ix, orders, x, w)
    return left == 0


@entry
def apply_events(rows, places, words, meta, scratch, orders, w, kinds, keys, first):
    """A worker's events from ``first`` on. Returns where it stopped: the end, or where a table is full."""
    ix = Index(rows, places, words, meta, scratch, orders)
    word, bit = word_of(w), bit_of(w)
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
            if rows[x, 0] == 0:
                if is_full(ix):
                    return i
                rows[x, 0] = keys[i]
                meta[0].live += 1
            if not hold(ix, ix.orders, x, w):
                return i
        elif rows[x, word] & bit != 0:
            lose(ix, ix.orders, x, w)
    return kinds.size


@kernel
def forget_worker(ix, w):
    """The worker holds nothing any more."""
    word, bit = word_of(w), bit_of(w)
    x = 0
    while x < ix.places:
        if ix.rows[x, word] & bit == 0 or not lose(ix, ix.orders, x, w):
            x += 1  # otherwise another row may have moved here


@entry
def forget(ix, w):
    """Python's way into ``forget_worker``."""
    forget_worker(ix, w)
