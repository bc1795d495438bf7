"""One pass of the scheduler: a prefill batch if anything is admitted, else a decode step (managers/scheduler.py, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.adder import continue_chunk, scan_waiting
from simkv.engine.sglang.batch import decode_fits, drop_finished, merge_last_batch, mix_decodes, prepare_decode, prepare_prefill
from simkv.engine.sglang.budget import begin_budget
from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import DECODE, NO_BATCH, NONE, PREFILL
from simkv.engine.sglang.life import checkpoint
from simkv.engine.sglang.policy import calc_priority
from simkv.engine.sglang.queue import enqueue
from simkv.engine.sglang.retract import retract
from simkv.engine.vllm.scheduler import step_duration


@splice
def stash_chunk(e, cfg, c):
    """What the last chunk computed enters the tree."""
    req = e.reqs[c.chunked]
    if req.extend_end > req.prefix:
        checkpoint(e, cfg, c, np.int64(c.chunked), np.int64(req.extend_end))
        req.prefix = req.extend_end


@splice
def requeue(e, cfg, c):
    """Who was thrown back in this pass waits again, behind the others."""
    while c.requeued < c.retracted:
        enqueue(e, cfg, c, np.int64(e.thrown_back[c.requeued]))
        c.requeued += 1


@splice
def try_prefill(e, cfg, c):
    """Build a prefill batch. Returns how many waiting requests were admitted."""
    if cfg.preemption or c.in_running == 0:
        c.full = 0
    if (c.full or c.wait_len == 0) and c.chunked < 0:
        return 0
    if min(cfg.max_running - c.in_running, c.free_slots) <= 0 and c.chunked < 0 and not cfg.preemption:
        c.full = 1
        return 0
    calc_priority(e, cfg, c)
    begin_budget(e, cfg, c)
    c.states = -1
    c.new_chunked = NONE
    if c.chunked >= 0:
        continue_chunk(e, cfg, c)
    admitted = scan_waiting(e, cfg, c)
    requeue(e, cfg, c)
    if c.batch_n == 0:
        return 0
    if c.new_chunked >= 0:
        c.chunked = c.new_chunked
    if c.chunked >= 0:
        e.reqs[c.chunked].middle_chunks += 1
    prepare_prefill(e, cfg, c)
    if cfg.mixed and not c.failed:
        mix_decodes(e, cfg, c)
    return admitted


@splice
def decode(e, cfg, c):
    if c.in_running == 0:
        return
    before = c.in_running
    if decode_fits(e, cfg, c):
        c.ratio = max(c.ratio - cfg.ratio_decay, cfg.ratio_min)
    else:
        retract(e, cfg, c)
        requeue(e, cfg, c)
    if c.in_running < before:
        c.full = 0
    prepare_decode(e, cfg, c)


@kernel
def schedule(e, cfg, c, step):
    """Fill ``e.batch`` and the step row. Returns the batch's duration in seconds."""
    c.victims = 0
    c.evicted = 0
    c.retracted = 0
    c.requeued = 0
    c.ordered = 0
    preemptions = c.preemptions
    if c.chunked >= 0:
        stash_chunk(e, cfg, c)
    if c.last_kind == PREFILL:
        merge_last_batch(e, cfg, c)
    drop_finished(e, c)
    c.batch_n = 0
    c.batch_held = 0
    admitted = try_prefill(e, cfg, c)
    c.last_kind = PREFILL
    if c.batch_n == 0:
        decode(e, cfg, c)
        c.last_kind = DECODE if c.batch_n > 0 else NO_BATCH
    prefill, decodes, context, attention = 0, 0, 0, 0.0
    for i in range(c.batch_n):
        row = e.batch[i]
        context += row.prefix + row.n
        attention += row.n * (row.prefix + 0.5 * row.n)
        if row.decode:
            decodes += 1
        else:
            prefill += row.n
    if c.last_kind == PREFILL:
        c.processed += prefill + decodes
    step.prefill = prefill
    step.decode = decodes
    step.admitted = admitted
    step.preempted = c.preemptions - preemptions
    step.duration = step_duration(cfg, prefill, decodes, context, attention)
    c.tokens += prefill + decodes
    return step.duration
