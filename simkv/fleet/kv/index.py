"""Which workers hold which blocks: a table of chain keys, each with a set of workers. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.engine.contract import KV_CLEARED, KV_REMOVED, KV_STORED
from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.request_keys import blocks_of, need_keys
from simkv.jit import prefetch

U = np.uint64
REMOVED, STORED, CLEARED = KV_REMOVED, KV_STORED, KV_CLEARED
"""``KVEvents.kinds``."""

META = np.dtype([("live", "i8")])
"""``live``: blocks somebody holds."""
AHEAD = 16
"""Events whose places are fetched before their turn: a table of millions of blocks is in no cache."""


class Index(NamedTuple):
    """An open addressing table of S = 2^k places, W workers, w = ceil(W / 64). A block that nobody holds has no row.

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
def same_holders(ix, x, y):
    differ = U(0)
    for i in range(1, 1 + ix.words):
        differ |= ix.rows[x, i] ^ ix.rows[y, i]
    return differ == 0


@inline
def home_of(ix, key):
    """Place where the search for a key begins; keys are well mixed."""
    return np.int64(key & U(ix.places - 1))


@inline
def fetch(ix, key):
    """The place where the search for a key begins will soon be looked at."""
    prefetch(ix.rows.ctypes.data + home_of(ix, key) * ix.rows.shape[1] * 8)


@inline
def place_of(ix, key):
    """Place that holds ``key``, or the empty one where it would go."""
    x = home_of(ix, key)
    while ix.rows[x, 0] != key and ix.rows[x, 0] != 0:
        x = (x + 1) & (ix.places - 1)
    return x


@inline
def move_row(rows, x, others, y):
    """Row ``y`` of ``others`` goes to place ``x``; it leaves an empty place."""
    for i in range(rows.shape[1]):
        rows[x, i] = others[y, i]
        others[y, i] = U(0)


@kernel
def drop(ix, x):
    """The block at place ``x`` leaves the table; later rows of its probe chain move up."""
    rows, mask = ix.rows, ix.places - 1
    for i in range(rows.shape[1]):
        rows[x, i] = U(0)
    i = x
    while True:
        i = (i + 1) & mask
        key = rows[i, 0]
        if key == 0:
            break
        if (i - home_of(ix, key)) & mask >= (i - x) & mask:
            move_row(rows, x, rows, i)
            x = i
    ix.meta[0].live -= 1


@inline
def is_full(table):
    return table.meta[0].live >= table.places // 8 * 5


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
def apply_events(ix, w, kinds, keys, first):
    """A worker's events from ``first`` on. Returns where it stopped: the end, or where a table is full."""
    rows, meta = ix.rows, ix.meta[0]
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
                meta.live += 1
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
def refill(table, rows, places):
    """Enter the rows of a table of ``places``. They may be those of ``table`` itself, with half the places.

    From an empty place on, rows go to places no later than their own (in either half), so none is written over.
    """
    first = 0
    while rows[first, 0] != 0:
        first += 1
    for i in range(1, places):
        y = (first + i) & (places - 1)
        if rows[y, 0] != 0:
            x = place_of(table, rows[y, 0])
            if table.rows[x, 0] == 0:
                move_row(table.rows, x, rows, y)


@entry
def forget(ix, w):
    """Python's way into ``forget_worker``."""
    forget_worker(ix, w)


@kernel
def give(ix, x, y, n, out):
    """Workers that hold the block at place ``x`` and not the one at ``y`` hold ``n`` blocks."""
    for i in range(1, 1 + ix.words):
        left = ix.rows[x, i] & ~ix.rows[y, i]
        w = (i - 1) << 6
        while left != 0:
            if left & U(0xFF) == 0:
                left >>= U(8)
                w += 8
                continue
            if left & U(1) != 0:
                out[w] = n
            left >>= U(1)
            w += 1


@kernel
def count_closed(ix, k, req, out):
    """Leading blocks of a prompt each worker holds, where holding a block means to hold those before it.

    The holders of later blocks are among those of earlier ones, so between two blocks with equal holders nothing happens.
    """
    rows, todo = ix.rows, ix.scratch
    out[:] = 0
    n = blocks_of(k, req)
    if n == 0:
        return
    need_keys(k, req, 1)
    low, x = 1, place_of(ix, k.keys[0])
    depth = 0
    while rows[x, 0] != 0 and low < n:  # by steps that double; what lies between is looked into below
        high = min(2 * low, n)
        need_keys(k, req, high)
        y = place_of(ix, k.keys[high - 1])
        if not same_holders(ix, x, y):
            todo[0, depth], todo[1, depth], todo[2, depth] = low, high, x
            depth += 1
        low, x = high, y
    give(ix, x, rows.shape[0] - 1, n, out)
    while depth > 0:
        depth -= 1
        low, high, x = todo[0, depth], todo[1, depth], todo[2, depth]
        y = place_of(ix, k.keys[high - 1])
        if high - low == 1:
            give(ix, x, y, low, out)
            continue
        middle = (low + high) >> 1
        z = place_of(ix, k.keys[middle - 1])
        if not same_holders(ix, x, z):
            todo[0, depth], todo[1, depth], todo[2, depth] = low, middle, x
            depth += 1
        if not same_holders(ix, z, y):
            todo[0, depth], todo[1, depth], todo[2, depth] = middle, high, z
            depth += 1


@kernel
def count_each(ix, k, req, out, active):
    """Leading blocks of a prompt each worker holds, block by block; ``active`` is u8[words] of scratch."""
    out[:] = 0
    n = blocks_of(k, req)
    active[:] = ~U(0)
    left = out.size
    for p in range(n):
        if p % AHEAD == 0:
            need_keys(k, req, min(p + AHEAD, n))
            for i in range(p, min(p + AHEAD, n)):
                fetch(ix, k.keys[i])
        x = place_of(ix, k.keys[p])
        lost = U(0)
        for i in range(ix.words):
            lost |= active[i] & ~ix.rows[x, 1 + i]
        if lost == 0:
            continue
        for w in range(out.size):
            if active[w >> 6] & bit_of(w) & ~ix.rows[x, word_of(w)] != 0:
                out[w] = p
                left -= 1
        if left == 0:
            return
        for i in range(ix.words):
            active[i] &= ix.rows[x, 1 + i]
    for w in range(out.size):
        if active[w >> 6] & bit_of(w) != 0:
            out[w] = n
