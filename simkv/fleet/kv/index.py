"""Which workers hold which blocks: a table of chain keys, each with a set of workers. Compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.engine.contract import KV_CLEARED, KV_REMOVED, KV_STORED
from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.request_keys import blocks_of, need_keys

U = np.uint64
HALF, LOW = U(32), U(0xFFFF_FFFF)
REMOVED, STORED, CLEARED = KV_REMOVED, KV_STORED, KV_CLEARED
"""``KVEvents.kinds``."""

META = np.dtype([("used", "i8"), ("free", "i8"), ("live", "i8")])
"""``used``: entries ever taken; ``free``: the first one given back, chained by their keys; ``live``: entries in the table."""


class Index(NamedTuple):
    """N entries, W workers. Entry 0 is none; its row is empty."""

    table: Any  # u8[2^k] open addressing, 0 = empty: lower half of a key, then its entry
    rows: Any  # u8[N + 1, 1 + ceil(W / 64)]: key, then the workers that hold it
    meta: Any  # META[1]
    scratch: Any  # i8[3, 64] intervals still to look into
    recent: Any  # i4[N + 1, P]: workers of an entry, +1, the latest first, where only P are kept; else one row without columns


@inline
def word_of(w):
    return 1 + (w >> 6)


@inline
def bit_of(w):
    return U(1) << U(w & 63)


@inline
def has(rows, x, w):
    """Whether worker ``w`` holds entry ``x``."""
    return rows[x, 1 + (w >> 6)] >> U(w & 63) & U(1) != 0


@inline
def is_empty(rows, x):
    """Whether nobody holds entry ``x``."""
    holders = U(0)
    for i in range(1, rows.shape[1]):
        holders |= rows[x, i]
    return holders == 0


@inline
def same_holders(rows, x, y):
    differ = U(0)
    for i in range(1, rows.shape[1]):
        differ |= rows[x, i] ^ rows[y, i]
    return differ == 0


@kernel
def place_of(table, rows, key):
    """Table position that holds ``key``, or the empty one where it would go."""
    mask = table.size - 1
    i = np.int64(key & U(mask))
    while True:
        word = table[i]
        if word == 0 or (word >> HALF == key & LOW and rows[np.int64(word & LOW), 0] == key):
            return i
        i = (i + 1) & mask


@inline
def find(table, rows, key):
    """Entry of a key, 0 if there is none."""
    return np.int64(table[place_of(table, rows, key)] & LOW)


@kernel
def new_entry(ix, key):
    """An entry nobody holds yet; the caller has seen to it that there is room."""
    meta = ix.meta[0]
    x = meta.free
    if x != 0:
        meta.free = np.int64(ix.rows[x, 0])
    else:
        meta.used += 1
        x = meta.used
    meta.live += 1
    place = place_of(ix.table, ix.rows, key)
    ix.rows[x, 0] = key
    ix.table[place] = (key << HALF) | U(x)
    return x


@kernel
def drop_entry(ix, x):
    """The entry leaves the table; later entries of its probe chain move up."""
    table, rows = ix.table, ix.rows
    mask = table.size - 1
    hole = place_of(table, rows, rows[x, 0])
    i = hole
    while True:
        i = (i + 1) & mask
        word = table[i]
        if word == 0:
            break
        home = np.int64((word >> HALF) & U(mask))
        if (i - home) & mask >= (i - hole) & mask:
            table[hole] = word
            hole = i
    table[hole] = U(0)
    meta = ix.meta[0]
    for i in range(1, rows.shape[1]):
        rows[x, i] = U(0)
    rows[x, 0] = U(meta.free)
    meta.free = x
    meta.live -= 1


@kernel
def keep_latest(ix, x, w):
    """Worker ``w`` is the latest to hold an entry; the one that came first is forgotten if there are too many."""
    latest = ix.recent[x]
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
def leave_latest(ix, x, w):
    """Worker ``w`` holds the entry no more."""
    latest, n = ix.recent[x], 0
    for i in range(latest.size):
        if latest[i] != w + 1:
            latest[n] = latest[i]
            n += 1
    for i in range(n, latest.size):
        latest[i] = 0


@entry
def apply_events(ix, w, kinds, keys, first):
    """A worker's events from ``first`` on. Returns where it stopped: the end, or where the index is full."""
    table, rows, meta = ix.table, ix.rows, ix.meta[0]
    word, bit = word_of(w), bit_of(w)
    for i in range(first, kinds.size):
        kind = kinds[i]
        if kind == STORED:
            x = find(table, rows, keys[i])
            if x == 0:
                if meta.free == 0 and meta.used + 1 >= len(rows):
                    return i
                x = new_entry(ix, keys[i])
            rows[x, word] |= bit
            if ix.recent.shape[1] > 0:
                keep_latest(ix, x, w)
        elif kind == REMOVED:
            x = find(table, rows, keys[i])
            if x != 0:
                rows[x, word] &= ~bit
                if ix.recent.shape[1] > 0:
                    leave_latest(ix, x, w)
                if is_empty(rows, x):
                    drop_entry(ix, x)
        else:
            forget_worker(ix, w)
    return kinds.size


@kernel
def forget_worker(ix, w):
    """The worker holds nothing any more."""
    rows = ix.rows
    word, bit = word_of(w), bit_of(w)
    for x in range(1, ix.meta[0].used + 1):
        if rows[x, word] & bit != 0:
            rows[x, word] &= ~bit
            if ix.recent.shape[1] > 0:
                leave_latest(ix, x, w)
            if is_empty(rows, x):
                drop_entry(ix, x)


@entry
def forget(ix, w):
    """Python's way into ``forget_worker``."""
    forget_worker(ix, w)


@kernel
def give(rows, x, y, n, out):
    """Workers of entry ``x`` that are not in ``y`` hold ``n`` blocks."""
    for i in range(1, rows.shape[1]):
        left = rows[x, i] & ~rows[y, i]
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
    table, rows, todo = ix.table, ix.rows, ix.scratch
    out[:] = 0
    n = blocks_of(k, req)
    if n == 0:
        return
    need_keys(k, req, 1)
    low, x = 1, find(table, rows, k.keys[0])
    depth = 0
    while x != 0 and low < n:  # by steps that double; what lies between is looked into below
        high = min(2 * low, n)
        need_keys(k, req, high)
        y = find(table, rows, k.keys[high - 1])
        if not same_holders(rows, x, y):
            todo[0, depth], todo[1, depth], todo[2, depth] = low, high, x
            depth += 1
        low, x = high, y
    give(rows, x, 0, n, out)
    while depth > 0:
        depth -= 1
        low, high, x = todo[0, depth], todo[1, depth], todo[2, depth]
        y = find(table, rows, k.keys[high - 1])
        if high - low == 1:
            give(rows, x, y, low, out)
            continue
        middle = (low + high) >> 1
        z = find(table, rows, k.keys[middle - 1])
        if not same_holders(rows, x, z):
            todo[0, depth], todo[1, depth], todo[2, depth] = low, middle, x
            depth += 1
        if not same_holders(rows, z, y):
            todo[0, depth], todo[1, depth], todo[2, depth] = middle, high, z
            depth += 1


@kernel
def count_each(ix, k, req, out, active):
    """Leading blocks of a prompt each worker holds, block by block; ``active`` is u8[words] of scratch."""
    rows = ix.rows
    out[:] = 0
    n = blocks_of(k, req)
    active[:] = ~U(0)
    for p in range(n):
        need_keys(k, req, p + 1)
        x = find(ix.table, rows, k.keys[p])
        anybody = U(0)
        for i in range(1, rows.shape[1]):
            active[i - 1] &= rows[x, i]
            anybody |= active[i - 1]
        if anybody == 0:
            return
        for w in range(out.size):
            if active[w >> 6] >> U(w & 63) & U(1) != 0:
                out[w] = p + 1
