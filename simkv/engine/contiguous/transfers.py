"""Whole sequences on their way to host memory and back.

PagedAttention (SOSP'23, section 4.5): all of a sequence is moved or nothing of it, and it makes no progress meanwhile. A
transfer takes (tokens that hold states) x (bytes per token) / (bytes per second) and a fixed part
(simkv/hardware/transfer.py), and each direction does one after the other. Only what holds states is copied. Ours: the memory
at both ends is taken for the whole of the transfer.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contiguous.compiled import inline, kernel
from simkv.engine.contiguous.pieces import end_slot, give_back
from simkv.engine.contract import WAITING
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, push_back
from simkv.events import layout as ev


@inline
def transfer_end(cfg, c, free_at, tokens):
    """When a transfer asked for now is done; in step mode at once."""
    return max(c.now, free_at) + cfg.swap_job_s + tokens * cfg.swap_s_per_token if cfg.virtual else c.now


@kernel
def leave(e, cfg, c, s):
    """Start moving a request, already off the running list, to host memory."""
    slot = e.slots[s]
    c.out_free = transfer_end(cfg, c, c.out_free, slot.computed)
    place = e.leaving[(c.out_head + c.out_len) % e.leaving.size]
    place.end = c.out_free
    place.slot = s
    c.out_len += 1
    c.host_used += slot.computed
    c.swapped_tokens += slot.computed


@kernel
def start_return(e, cfg, c, s):
    """Start moving an admitted request back."""
    c.in_free = transfer_end(cfg, c, c.in_free, e.slots[s].computed)
    place = e.returning[(c.in_head + c.in_len) % e.returning.size]
    place.end = c.in_free
    place.slot = s
    c.in_len += 1
    c.swap_ins += 1


@inline
def next_transfer_end(e, c):
    """When the next transfer is done; infinity if none is under way."""
    t = np.inf
    if c.out_len > 0:
        t = e.leaving[c.out_head].end
    if c.in_len > 0:
        t = min(t, e.returning[c.in_head].end)
    return t


@kernel
def finish_leaving(e, cfg, c, s):
    """All of it is in host memory: the piece is free, the request queues up behind everybody who waits."""
    slot = e.slots[s]
    r = np.int64(slot.req)
    if slot.ended > 0:
        c.host_used -= slot.computed
        end_slot(e, cfg, c, s, np.int64(slot.ended))
        return
    give_back(e, cfg, c, s)
    req = e.reqs[r]
    req.status = WAITING
    req.waiting_since = clock(cfg, c)
    push_back(e.reqs, e.queue, cfg, c, r)
    if cfg.log:
        emit(c, e.log, ev.PREEMPTED, 0, r, 0)


@kernel
def finish_returning(e, cfg, c, s):
    """All of it is back: the request computes again."""
    slot = e.slots[s]
    c.host_used -= slot.computed
    if slot.ended > 0:
        end_slot(e, cfg, c, s, np.int64(slot.ended))
        return
    slot.since = clock(cfg, c)
    e.running[c.running] = s
    c.running += 1
    if cfg.log:
        emit(c, e.log, ev.WRITTEN, 0, slot.req, (slot.computed + cfg.cell - 1) // cfg.cell)


@kernel
def finish_transfers(e, cfg, c):
    """Take in what is done by now."""
    while c.out_len > 0 and e.leaving[c.out_head].end <= c.now:
        s = np.int64(e.leaving[c.out_head].slot)
        c.out_head = (c.out_head + 1) % e.leaving.size
        c.out_len -= 1
        finish_leaving(e, cfg, c, s)
    while c.in_len > 0 and e.returning[c.in_head].end <= c.now:
        s = np.int64(e.returning[c.in_head].slot)
        c.in_head = (c.in_head + 1) % e.returning.size
        c.in_len -= 1
        finish_returning(e, cfg, c, s)
