"""The allocator's free list (mem_cache/allocator/token.py, paged.py, 0.5.23).

A ring of page ids, taken from the head. With single-token pages what is given back goes to the tail; with bigger pages
each call is put before the head, in its own order. Inside a free group nothing is available until the group ends, when
all calls count as one.
"""

from __future__ import annotations

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.log import emit_pages
from simkv.events import layout as ev


@inline
def available(cfg, c):
    """Tokens in the free list."""
    return c.free_len * cfg.page


@kernel
def take_pages(e, cfg, c, r, row, first, n):
    """Move ``n`` pages from the head of the free list to ``row[first:]``."""
    mask = e.free.size - 1
    for i in range(n):
        row[first + i] = e.free[(c.free_head + i) & mask]
    c.free_head = (c.free_head + n) & mask
    c.free_len -= n
    if cfg.log:
        emit_pages(e, c, ev.ALLOCATED, r, row, first, n)


@kernel
def put_back(e, cfg, c, pages, first, n):
    """Return pages to the free list at once."""
    mask = e.free.size - 1
    if cfg.page == 1:
        tail = c.free_head + c.free_len
        for i in range(n):
            e.free[(tail + i) & mask] = pages[first + i]
    else:
        c.free_head = (c.free_head - n) & mask
        for i in range(n):
            e.free[(c.free_head + i) & mask] = pages[first + i]
    c.free_len += n


@inline
def freed_kind(cfg):
    return ev.FREED_BACK if cfg.page == 1 else ev.FREED_FRONT


@kernel
def give_back(e, cfg, c, r, row, first, last):
    """A request returns ``row[first:last]``, now or at the end of the free group."""
    n = last - first
    if n <= 0:
        return
    if c.grouped:
        segment = e.segments[c.segments]
        segment.req = r
        segment.first = c.pending
        segment.n = n
        c.segments += 1
        for i in range(n):
            e.pending[c.pending + i] = row[first + i]
        c.pending += n
        return
    put_back(e, cfg, c, row, first, n)
    if cfg.log:
        emit_pages(e, c, freed_kind(cfg), r, row, first, n)


@kernel
def end_group(e, cfg, c):
    """All pages of the free group become available, in order of the calls."""
    c.grouped = 0
    if c.pending > 0:
        put_back(e, cfg, c, e.pending, 0, c.pending)
    if cfg.log:
        log_group(e, cfg, c)
    c.pending = 0
    c.segments = 0


@splice
def log_group(e, cfg, c):
    """Rows that leave the free list as the group does: put before the head, the last request's pages come first."""
    last = c.segments
    while last > 0:
        first = last - 1
        while first > 0 and e.segments[first - 1].req == e.segments[first].req:
            first -= 1
        begin = e.segments[first].first
        n = e.segments[last - 1].first + e.segments[last - 1].n - begin
        if cfg.page > 1:
            emit_pages(e, c, ev.FREED_FRONT, e.segments[first].req, e.pending, begin, n)
        last = first
    if cfg.page == 1:
        for i in range(c.segments):
            segment = e.segments[i]
            emit_pages(e, c, ev.FREED_BACK, segment.req, e.pending, segment.first, segment.n)
