"""How much of a prompt each worker holds, from an index of blocks. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.index import AHEAD, Index
from simkv.fleet.kv.orders import bit_of, word_of
from simkv.fleet.kv.request_keys import Keys, blocks_of, need_keys
from simkv.fleet.kv.table import fetch, place_of

U = np.uint64


@inline
def same_holders(ix, x, y):
    differ, a, b = U(0), ix.rows[x].holders, ix.rows[y].holders
    for i in range(a.size):
        differ |= a[i] ^ b[i]
    return differ == 0


@kernel
def give(ix, x, y, n, out):
    """Workers that hold the block at place ``x`` and not the one at ``y`` hold ``n`` blocks."""
    a, b = ix.rows[x].holders, ix.rows[y].holders
    for i in range(a.size):
        left = a[i] & ~b[i]
        w = i << 6
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
    while rows[x].key != 0 and low < n:  # by steps that double; what lies between is looked into below
        high = min(2 * low, n)
        need_keys(k, req, high)
        y = place_of(ix, k.keys[high - 1])
        if not same_holders(ix, x, y):
            todo[0, depth], todo[1, depth], todo[2, depth] = low, high, x
            depth += 1
        low, x = high, y
    give(ix, x, rows.size - 1, n, out)
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
        holders = ix.rows[place_of(ix, k.keys[p])].holders
        lost = U(0)
        for i in range(holders.size):
            lost |= active[i] & ~holders[i]
        if lost == 0:
            continue
        for w in range(out.size):
            if active[word_of(w)] & bit_of(w) & ~holders[word_of(w)] != 0:
                out[w] = p
                left -= 1
        if left == 0:
            return
        for i in range(holders.size):
            active[i] &= holders[i]
    for w in range(out.size):
        if active[word_of(w)] & bit_of(w) != 0:
            out[w] = n


@entry
def count(rows, places, meta, scratch, orders, reqs, runs, tokens, images, cursor, keys, gaps, req, out, active):
    """Leading blocks of a prompt each worker holds, into ``out``; with ``gaps`` block by block. Python's way in."""
    ix, k = Index(rows, places, meta, scratch, orders), Keys(reqs, runs, tokens, images, cursor, keys)
    if gaps:
        count_each(ix, k, req, out, active)
    else:
        count_closed(ix, k, req, out)
