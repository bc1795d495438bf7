"""Rows of the event log. The caller has checked ``config.log``, and the turn has reserved room."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.vllm.keys import block_keys
from simkv.engine.vllm.pool import emit, emit_key, emit_run
from simkv.events import layout as ev

__all__ = ["emit", "emit_evicted", "emit_pages", "log_stored"]


@inline
def emit_pages(e, c, kind, r, pages, first, n):
    """One row for each of ``pages[first : first + n]``."""
    write_pages(e, c, np.int64(kind), np.int64(r), pages, np.int64(first), np.int64(n))


@kernel
def write_pages(e, c, kind, r, pages, first, n):
    for i in range(n):
        e.log_blocks[c.logged_blocks + i] = pages[first + i]
    emit_run(c, e.log, kind, 0, r, n)


@kernel
def emit_evicted(e, cfg, c, first, n):
    """A victim's pages; those that go before the head of the free list go one by one, so the last is named first."""
    for i in range(n):
        e.log_blocks[c.logged_blocks + i] = e.evicted[first + i if cfg.page == 1 else first + n - 1 - i]
    emit_run(c, e.log, ev.EVICTED, 0, -1, n)


@splice
def log_stored(e, cfg, c, r, row, first, last):
    """Pages ``first … last-1`` of a request's row entered the tree."""
    emit(c, e.log, ev.STORE, 0, r, last)
    req = e.reqs[r]
    block_keys(req, e.runs, e.tokens, e.images, cfg.page, last, e.keys)
    for i in range(first, last):
        emit_key(c, e.log_keys, e.keys[i])
    emit_pages(e, c, ev.STORED, r, row, first, last - first)
