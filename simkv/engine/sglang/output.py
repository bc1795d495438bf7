"""What a batch computed is taken in: tokens appended, finished requests released (batch_result_processor.py, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import inline, kernel, splice
from simkv.engine.sglang.layout import ABORTED, FINISHED, PREFILL, REJECTED, RUNNING
from simkv.engine.sglang.life import checkpoint, release
from simkv.engine.sglang.log import emit
from simkv.engine.sglang.pages import end_group
from simkv.engine.sglang.queue import clock
from simkv.engine.vllm.queue import start_successors
from simkv.events import layout as ev


@kernel
def end_request(e, cfg, c, r, status):
    """A request without pages leaves the engine; its successors may arrive."""
    req = e.reqs[r]
    req.status = status
    req.finish = clock(cfg, c)
    c.unfinished -= 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
    if cfg.log:
        emit(c, e.log, ev.FINISHED if status == FINISHED else ev.ABORTED, 0, r, 0)


@inline
def record_gap(gaps, c, r, gap):
    record = gaps[c.logged_gaps]
    record.gap = gap
    record.step = c.logged_steps - 1 + c.logged_ticks
    record.req = r
    c.logged_gaps += 1


@splice
def take_token(e, cfg, c, r):
    """One more token of a request. Returns 1 if it came one batch after its predecessor."""
    req = e.reqs[r]
    now = clock(cfg, c)
    cadence = 0
    if req.generated == 0:
        req.first_token = now
        if cfg.log:
            emit(c, e.log, ev.FIRST_TOKEN, 0, r, 0)
    elif req.last_batch == c.batches - 2:
        cadence = 1
    else:
        record_gap(e.gaps, c, r, now - req.last_token)
    req.generated += 1
    req.last_token = now
    req.last_batch = c.batches - 1
    return cadence


@kernel
def update(e, cfg, c):
    """Process the batch. Returns how many requests finished. All pages given back become free at its end."""
    turn = c.logged_steps - 1
    done, ended, cadence = 0, 0, 0
    c.grouped = 1
    for i in range(c.batch_n):
        row = e.batch[i]
        r = np.int64(row.req)
        req = e.reqs[r]
        if req.middle_chunks > 0:
            req.middle_chunks -= 1
            continue
        cadence += take_token(e, cfg, c, r)
        if req.generated >= req.num_output or req.to_abort:
            req.status = ABORTED if req.to_abort else FINISHED
            checkpoint(e, cfg, c, r, np.int64(req.committed))
            release(e, cfg, c, r)
            ended += 1
            done += not req.to_abort
        elif c.last_kind == PREFILL and (cfg.checkpoint_mixed or not row.decode):
            checkpoint(e, cfg, c, r, np.int64(req.extend_end))
            req.prefix = req.extend_end
    end_group(e, cfg, c)
    if ended > 0:
        for i in range(c.batch_n):
            r = np.int64(e.batch[i].req)
            if e.reqs[r].status != RUNNING:
                end_request(e, cfg, c, r, np.int64(e.reqs[r].status))
    c.finished += done
    c.aborted += ended - done
    step = e.steps[turn]
    step.finished = done
    step.cadence = cadence
    step.end = clock(cfg, c)
    return done


@splice
def reject(e, cfg, c, r):
    """The server answers with an error, the queue never sees the request."""
    e.reqs[r].status = REJECTED
    c.rejected += 1
    start_successors(e.reqs, e.queue, c, r, clock(cfg, c))
