"""Two ways to find an unbroken piece of memory: buddy blocks and first fit.

Free pieces stand in lists by address; the lowest address that serves is taken. That choice is ours (the paper names only
"the buddy allocation algorithm"); it makes runs repeatable.

Buddy (Knowlton 1965): pieces are powers of two cells, aligned to their size; a piece twice too big is halved, and a freed
piece is joined with its other half whenever that is free and whole. A pool that is no power of two starts as the aligned
powers of two it is made of, which never join.

First fit: a piece has exactly the cells asked for and is cut from the first hole that is big enough; a freed piece is
joined with the holes beside it.
"""

from __future__ import annotations

from simkv.engine.contiguous.compiled import inline, kernel
from simkv.engine.contiguous.layout import ORDERS


@inline
def order_of(size):
    """The smallest k with 2^k >= size."""
    k = 0
    while (1 << k) < size:
        k += 1
    return k


@inline
def rounded(cfg, size):
    """Cells a piece of ``size`` cells really takes."""
    return 1 << order_of(size) if cfg.buddy else size


@kernel
def put_free(cells, heads, k, a):
    """Put a free piece into list ``k``; returns the free piece before it, -1 if it is the first."""
    before, at = -1, heads[k]
    while 0 <= at < a:
        before, at = at, cells[at].next
    cells[a].next = at
    cells[a].owner = 0
    if before < 0:
        heads[k] = a
    else:
        cells[before].next = a
    return before


@kernel
def take_free(cells, heads, k, a):
    """Take a free piece out of list ``k``."""
    if heads[k] == a:
        heads[k] = cells[a].next
        return
    before = heads[k]
    while cells[before].next != a:
        before = cells[before].next
    cells[before].next = cells[a].next


@inline
def buddy_piece(cells, heads, size):
    order = order_of(size)
    k = order
    while k < ORDERS and heads[k] < 0:
        k += 1
    if k >= ORDERS:
        return -1
    a = heads[k]
    heads[k] = cells[a].next
    while k > order:
        k -= 1
        half = a + (1 << k)
        cells[half].span = 1 << k
        put_free(cells, heads, k, half)
    cells[a].span = 1 << order
    return a


@inline
def first_fit_piece(cells, heads, size):
    before, a = -1, heads[0]
    while a >= 0 and cells[a].span < size:
        before, a = a, cells[a].next
    if a < 0:
        return -1
    following = cells[a].next
    if cells[a].span > size:
        rest = a + size
        cells[rest].span = cells[a].span - size
        cells[rest].owner = 0
        cells[rest].next = following
        following = rest
    if before < 0:
        heads[0] = following
    else:
        cells[before].next = following
    cells[a].span = size
    return a


@kernel
def allocate(cells, heads, cfg, c, size, owner):
    """A piece of at least ``size`` cells for request ``owner``: its first cell, -1 if there is none."""
    a = buddy_piece(cells, heads, size) if cfg.buddy else first_fit_piece(cells, heads, size)
    if a >= 0:
        cells[a].owner = owner + 1
        c.free -= cells[a].span
        c.held += cells[a].span
    return a


@kernel
def release(cells, heads, cfg, c, a):
    """Give a piece back and join it with what is free beside it."""
    c.free += cells[a].span
    c.held -= cells[a].span
    if cfg.buddy:
        k = order_of(cells[a].span)
        while True:
            other = a ^ (1 << k)
            if other + (1 << k) > cfg.cells or cells[other].owner != 0 or cells[other].span != 1 << k:
                break
            take_free(cells, heads, k, other)
            cells[max(a, other)].span = 0
            a = min(a, other)
            k += 1
            cells[a].span = 1 << k
        put_free(cells, heads, k, a)
        return
    before = put_free(cells, heads, 0, a)
    following = cells[a].next
    if following >= 0 and a + cells[a].span == following:
        cells[a].span += cells[following].span
        cells[a].next = cells[following].next
        cells[following].span = 0
    if before >= 0 and before + cells[before].span == a:
        cells[before].span += cells[a].span
        cells[before].next = cells[a].next
        cells[a].span = 0
