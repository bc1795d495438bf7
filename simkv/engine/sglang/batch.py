"""Pages for a batch: prefill, decode, and decode rows that ride along with a prefill (mem_cache/allocation.py, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.evict import evict_until
from simkv.engine.sglang.layout import RUNNING
from simkv.engine.sglang.log import emit, emit_pages
from simkv.engine.sglang.pages import take_pages
from simkv.engine.sglang.tree import copy_path
from simkv.events import layout as ev


@inline
def pages_for(cfg, tokens):
    return (tokens + cfg.page - 1) // cfg.page


@splice
def take_row(e, cfg, c, r):
    """A row for an admitted request, with the pages of what was found; a request in chunks has one."""
    req = e.reqs[r]
    if req.slot >= 0:
        return
    c.free_slots -= 1
    req.slot = e.free_slots[c.free_slots]
    row = e.rows[req.slot]
    if req.prefix > 0:
        copy_path(e, c, np.int64(req.last_node), row)
    n = req.prefix // cfg.page
    c.held += n
    if cfg.log:
        emit_pages(e, c, ev.HIT, r, row, 0, n)


@splice
def prepare_prefill(e, cfg, c):
    """Rows and pages for every request of the batch, in its order. Bigger pages: room is made for one page too many each."""
    tokens = 0
    for i in range(c.batch_n):
        take_row(e, cfg, c, np.int64(e.batch[i].req))
        tokens += e.batch[i].n
    if not evict_until(e, cfg, c, tokens + (c.batch_n * cfg.page if cfg.page > 1 else 0)) and cfg.page == 1:
        c.failed = 1
        return
    for i in range(c.batch_n):
        row = e.batch[i]
        r = np.int64(row.req)
        req = e.reqs[r]
        first = pages_for(cfg, row.prefix)
        n = pages_for(cfg, row.prefix + row.n) - first
        if n > c.free_len:
            c.failed = 1
            return
        take_pages(e, cfg, c, r, e.rows[req.slot], first, n)
        c.held += n
        req.committed = row.prefix + row.n
        if cfg.log:
            emit(c, e.log, ev.SCHEDULED, 0, r, row.n)


@kernel
def decode_fits(e, cfg, c):
    """Whether the next decode step of all in the running list finds its pages, after eviction (check_decode_mem)."""
    pages = 0
    for i in range(c.in_running):
        pages += e.reqs[e.running[i]].committed % cfg.page == 0
    return evict_until(e, cfg, c, pages * cfg.page)


@kernel
def prepare_decode(e, cfg, c):
    """One more token for every running request: append the running list to the batch."""
    if cfg.page > 1:
        evict_until(e, cfg, c, c.in_running * cfg.page)
    for i in range(c.in_running):
        r = np.int64(e.running[i])
        req = e.reqs[r]
        if req.committed % cfg.page == 0:
            if c.free_len == 0:
                c.failed = 1
                return
            take_pages(e, cfg, c, r, e.rows[req.slot], req.committed // cfg.page, 1)
            c.held += 1
        row = e.batch[c.batch_n]
        row.req = r
        row.prefix = req.committed
        row.n = 1
        row.decode = 1
        c.batch_n += 1
        req.committed += 1
        if cfg.log:
            emit(c, e.log, ev.SCHEDULED, 0, r, 1)


@splice
def mix_decodes(e, cfg, c):
    """Decode the running requests in the prefill batch too, if their pages are there; else they sit out this step."""
    if c.in_running == 0 or not decode_fits(e, cfg, c):
        return
    first = c.batch_n
    prepare_decode(e, cfg, c)
    for i in range(first, c.batch_n):
        req = e.reqs[e.batch[i].req]
        req.extend_end = req.committed
        req.filled = req.num_prompt + req.generated
    c.in_running = 0


@splice
def merge_last_batch(e, cfg, c):
    """The last prefill's unfinished requests join the running list, except the one still in chunks."""
    kept = 0
    dropped = 0
    first = c.in_running
    for i in range(c.batch_n):
        r = np.int64(e.batch[i].req)
        if e.reqs[r].status != RUNNING or r == c.chunked:
            dropped = 1
            continue
        e.running[first + kept] = r
        kept += 1
    if dropped or (kept > 0 and first == 0):
        c.full = 0
    c.in_running += kept


@splice
def drop_finished(e, c):
    kept = 0
    for i in range(c.in_running):
        r = e.running[i]
        if e.reqs[r].status == RUNNING:
            e.running[kept] = r
            kept += 1
    if kept < c.in_running:
        c.full = 0
    c.in_running = kept
