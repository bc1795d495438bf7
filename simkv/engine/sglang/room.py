"""Whether the logs can take one more turn: nothing is allocated in compiled code, so they grow between turns."""

from __future__ import annotations

from simkv.engine.sglang.compiled import inline, kernel
from simkv.engine.sglang.queue import clock, pages_of


@kernel
def due_pages(e, cfg, c):
    """Pages of the requests that arrive in the next turn, at most."""
    pages = 0
    now = clock(cfg, c)
    r = c.next_arrival
    while r < e.reqs.size and (e.reqs[r].chained or e.reqs[r].arrive <= now):
        pages += pages_of(cfg, e.reqs[r])
        r += 1
    for i in range(c.timers):
        pages += pages_of(cfg, e.reqs[e.queue[i].timer])
    return pages


@inline
def has_room(e, cfg, c):
    """Whether all logs can take one more turn; else ``c.need_…`` say how much must be free.

    A row stands for pages in a run: a node evicted or entered, a request admitted, adopted or released (an adoption takes at
    least one page that was computed). Every page can be allocated, stored, evicted and given back once, and what waits may be
    found in the cache in full.
    """
    c.need_rows = 0
    if cfg.log:
        c.need_rows = 8 * c.nodes + 4 * cfg.num_pages + 32 * cfg.max_running + 2 * e.reqs.size + 2 * e.actions.size + 64
        c.need_blocks = 6 * cfg.num_pages + 2 * c.held + c.wait_pages + due_pages(e, cfg, c) + 64
        c.need_keys = 2 * cfg.num_pages + 64
        if c.logged_rows + c.need_rows > e.log.size or c.logged_blocks + c.need_blocks > e.log_blocks.size:
            return False
        if c.logged_keys + c.need_keys > e.log_keys.size or c.events > cfg.max_events:
            return False
    if c.logged_ticks >= e.ticks.size:
        return False
    return c.logged_steps < e.steps.size and c.logged_gaps + 2 * cfg.max_running <= e.gaps.size
