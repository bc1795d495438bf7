"""A request's piece of memory, from its reservation to its return.

How much is reserved (PagedAttention, SOSP'23, section 6.1): *max* the model's longest sequence; *pow2* the prompt and at most
twice the true output, rounded up to a power of two (25 tokens of output reserve 32); *oracle* the prompt and the true output.
Never more than ``max_model_len``. The allocator may round the piece up further (memory.py).
"""

from __future__ import annotations

import numpy as np

from simkv.engine.contiguous.compiled import inline, kernel
from simkv.engine.contiguous.layout import MAX, POW2
from simkv.engine.contiguous.memory import allocate, order_of, release
from simkv.engine.contract import FINISHED
from simkv.engine.vllm.pool import emit, emit_run
from simkv.engine.vllm.queue import clock, start_successors
from simkv.events import layout as ev


@inline
def asked_tokens(cfg, req):
    """Tokens reserved for a request, before the allocator rounds."""
    if cfg.reservation == MAX:
        return cfg.max_model_len
    output = np.int64(req.num_output)
    if cfg.reservation == POW2:
        output = np.int64(1) << order_of(output)
    return min(req.num_prompt + output, cfg.max_model_len)


@inline
def asked_cells(cfg, req):
    """The same in cells."""
    return (asked_tokens(cfg, req) + cfg.cell - 1) // cfg.cell


@inline
def log_cells(e, c, kind, r, a):
    """One run of events for a piece: its cells are blocks a+1 … of the log."""
    size = np.int64(e.cells[a].span)
    for k in range(size):
        e.log_blocks[c.logged_blocks + k] = a + 1 + k
    emit_run(c, e.log, kind, 0, r, size)


@kernel
def take(e, cfg, c, r):
    """Reserve memory and a slot for request ``r``: the slot, -1 if there is no piece big enough."""
    req = e.reqs[r]
    a = allocate(e.cells, e.heads, cfg, c, asked_cells(cfg, req), r)
    if a < 0:
        return -1
    c.free_slots -= 1
    s = e.free_slots[c.free_slots]
    slot = e.slots[s]
    slot.req = r
    slot.at = a
    slot.ended = 0
    slot.num_prompt = req.num_prompt
    slot.num_tokens = req.num_prompt + req.generated
    slot.last_tokens = min(req.num_prompt + req.num_output, cfg.max_model_len)
    slot.computed = req.computed
    slot.last_batch = -2
    slot.last_time = req.last_token
    slot.since = clock(cfg, c)
    req.slot = s
    if cfg.log:
        log_cells(e, c, ev.ALLOCATED, r, a)
    return s


@kernel
def give_back(e, cfg, c, s):
    """Free a slot and its memory; what the request has computed and generated stays known."""
    slot = e.slots[s]
    req = e.reqs[slot.req]
    req.generated = slot.num_tokens - slot.num_prompt
    req.last_token = slot.last_time
    req.computed = slot.computed
    req.slot = -1
    if cfg.log:
        log_cells(e, c, ev.FREED_BACK, slot.req, slot.at)
    release(e.cells, e.heads, cfg, c, np.int64(slot.at))
    slot.req = -1
    e.free_slots[c.free_slots] = s
    c.free_slots += 1


@kernel
def end_request(e, cfg, c, r, status):
    """The request is over and holds nothing any more; its successors may arrive."""
    req = e.reqs[r]
    req.status = status
    req.finish = clock(cfg, c)
    c.unfinished -= 1
    if status == FINISHED:
        c.finished += 1
    else:
        c.aborted += 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
    if cfg.log:
        emit(c, e.log, ev.FINISHED if status == FINISHED else ev.ABORTED, 0, r, 0)


@kernel
def end_slot(e, cfg, c, s, status):
    """The same for a request that holds memory."""
    r = np.int64(e.slots[s].req)
    give_back(e, cfg, c, s)
    end_request(e, cfg, c, r, status)
