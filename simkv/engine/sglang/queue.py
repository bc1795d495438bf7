"""The waiting queue, a stretch of an array in scheduling order, and the order of its requests by a stable sort."""

from __future__ import annotations

from simkv.engine.sglang.compiled import inline, kernel
from simkv.engine.sglang.layout import WAITING


@inline
def clock(cfg, c):
    """Seconds; in step mode the number of scheduling passes."""
    return c.now if cfg.virtual else float(c.steps)


@inline
def waiting_at(e, c, i):
    return e.queue[c.wait_head + i].waiting


@inline
def pages_of(cfg, req):
    """Pages of everything the request knows, rounded up."""
    return (req.num_prompt + req.generated) // cfg.page + 1


@kernel
def enqueue(e, cfg, c, r):
    """Append a new, retracted or preempted request (Scheduler._add_request_to_queue)."""
    if c.wait_head + c.wait_len == e.queue.size:
        for i in range(c.wait_len):
            e.queue[i].waiting = e.queue[c.wait_head + i].waiting
        c.wait_head = 0
    e.queue[c.wait_head + c.wait_len].waiting = r
    c.wait_len += 1
    req = e.reqs[r]
    req.status = WAITING
    c.wait_pages += pages_of(cfg, req)
    req.entered = c.entries
    req.arrival_processed = c.processed
    c.entries += 1


@kernel
def remove_waiting(e, cfg, c, r):
    """Take a request out of the middle of the queue."""
    i = 0
    while i < c.wait_len and e.queue[c.wait_head + i].waiting != r:
        i += 1
    if i == c.wait_len:
        return
    for k in range(c.wait_head + i, c.wait_head + c.wait_len - 1):
        e.queue[k].waiting = e.queue[k + 1].waiting
    c.wait_len -= 1
    c.wait_pages -= pages_of(cfg, e.reqs[r])
