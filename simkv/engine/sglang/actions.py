"""What clients and operators do from outside: abort a request, flush the cache (Scheduler.abort_request, flush_cache, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import ABORTED, NONE, ROOT, RUNNING, WAITING
from simkv.engine.sglang.life import release
from simkv.engine.sglang.log import emit, emit_pages
from simkv.engine.sglang.output import end_request
from simkv.engine.sglang.queue import remove_waiting
from simkv.events import layout as ev


@kernel
def abort(e, cfg, c, r):
    """A waiting request leaves at once, one in chunks before its next chunk; a running one ends with its next token.

    The tree keeps what a running one computed.
    """
    req = e.reqs[r]
    if r == c.chunked:
        release(e, cfg, c, r)
        c.chunked = NONE
        end_request(e, cfg, c, r, np.int64(ABORTED))
        c.aborted += 1
        return
    if req.status == WAITING:
        remove_waiting(e, cfg, c, r)
        end_request(e, cfg, c, r, np.int64(ABORTED))
        c.aborted += 1
    elif req.status == RUNNING:
        req.to_abort = 1


@kernel
def clear_tree(e, cfg, c):
    """Only the root is left, and the free list is as at the start."""
    e.table[:] = 0
    c.nodes = 1
    c.free_node = 0
    root = e.nodes[ROOT]
    root.first = root.last = root.children = root.history = 0
    root.priority = -(1 << 62)
    root.heap = NONE
    root.parent = NONE
    c.heap_len = c.evictable = c.protected = c.cached = c.arena_at = 0
    c.free_head = 0
    c.free_len = cfg.num_pages
    for i in range(cfg.num_pages):
        e.free[i] = i + 1


@kernel
def flush_cache(e, cfg, c):
    """Refused while anything waits or runs."""
    if c.unfinished > 0:
        if cfg.log:
            emit(c, e.log, ev.RESET_FAILED, 0, -1, 0)
        return
    if cfg.log:
        log_flush(e, c)
    clear_tree(e, cfg, c)


@splice
def log_flush(e, c):
    """Every cached page leaves; that the free list is sorted again afterwards, the log does not say."""
    arena = e.arena[c.arena_half]
    for n in range(1, c.nodes):
        emit_pages(e, c, ev.EVICTED, -1, arena, np.int64(e.nodes[n].slots), np.int64(e.nodes[n].pages))
    emit(c, e.log, ev.CLEARED, 0, -1, 0)
