"""schedule(): who holds memory and who computes in this step.

*Continuous batching* is Orca's iteration-level scheduling (OSDI'22, section 3.2): requests join and leave between steps, first
come first served; one is admitted only if all it may come to need can be reserved; its prompt is computed whole in its first
step, beside the others' next tokens. *Static batching* is what Orca's section 3.1 sets out from and the PagedAttention paper's
FasterTransformer baseline does: a batch is formed when nothing runs, prompts are padded to the longest, and members that have
ended are computed on, and their answers held back, until the last one ends. Ours: padding is counted and costs time, but no
memory beyond the reservation.

When something is swapped is our reading: with everything reserved at admission nobody ever runs out of memory, so no paper
gives a rule for these systems. Here the head of the queue, once it has waited ``swap_patience_s``, pushes out one running
request that has computed for at least as long and whose piece is big enough; of several the one that arrived last, as in
PagedAttention's section 4.5. One request leaves at a time.
"""

from __future__ import annotations

from simkv.engine.contiguous.compiled import inline, kernel, splice
from simkv.engine.contiguous.memory import rounded
from simkv.engine.contiguous.pieces import asked_cells, take
from simkv.engine.contiguous.transfers import finish_transfers, leave, start_return
from simkv.engine.contract import RUNNING
from simkv.engine.vllm.pool import emit
from simkv.engine.vllm.queue import clock, head, pop_head
from simkv.engine.vllm.scheduler import remove_running, step_duration
from simkv.events import layout as ev


@splice
def admit_waiting(e, cfg, c):
    """Admit from the head of the queue until something does not fit. Returns the number admitted."""
    admitted = 0
    while c.wait_len > 0 and c.free_slots > 0:
        r = head(e.queue, cfg, c)
        s = take(e, cfg, c, r)
        if s < 0:
            break
        pop_head(e.reqs, e.queue, cfg, c)
        req = e.reqs[r]
        req.status = RUNNING
        if cfg.log:
            emit(c, e.log, ev.ADMITTED if req.preempted == 0 else ev.RESUMED, 0, r, req.computed)
        if req.computed > 0:
            start_return(e, cfg, c, s)
        else:
            req.scheduled = clock(cfg, c)
            e.running[c.running] = s
            c.running += 1
        admitted += 1
    return admitted


@kernel
def victim_for(e, cfg, c, r, others):
    """Position of the running request to push out for ``r``, among the first ``others``; -1 if there is none."""
    now = clock(cfg, c)
    size = rounded(cfg, asked_cells(cfg, e.reqs[r]))
    found = -1
    for i in range(others):
        slot = e.slots[e.running[i]]
        settled = now > slot.since and now - slot.since >= cfg.patience
        fits = e.cells[slot.at].span >= size and c.host_used + slot.computed <= cfg.host_tokens
        if settled and fits and (found < 0 or e.reqs[slot.req].arrive >= e.reqs[e.slots[e.running[found]].req].arrive):
            found = i
    return found


@splice
def swap_for_head(e, cfg, c, others):
    """Push one running request out if the head of the queue has waited long enough. Returns 1 if one leaves."""
    if not cfg.swap or c.out_len > 0 or c.wait_len == 0 or c.free_slots == 0:
        return 0
    r = head(e.queue, cfg, c)
    if clock(cfg, c) - e.reqs[r].waiting_since < cfg.patience:
        return 0
    i = victim_for(e, cfg, c, r, others)
    if i < 0:
        return 0
    s = e.running[i]
    remove_running(e.running, c, i)
    e.reqs[e.slots[s].req].preempted += 1
    leave(e, cfg, c, s)
    return 1


@inline
def begin_batch(e, c):
    """A static batch: everybody's prompt becomes as long as the longest."""
    c.batch_prompt = 0
    c.batch_left = c.running
    for i in range(c.running):
        c.batch_prompt = max(c.batch_prompt, e.slots[e.running[i]].num_prompt)


@kernel
def fill_row(e, cfg, c, s):
    """The slot's row of this step: its whole prompt, or one token; nothing if it has ended (static batch)."""
    slot = e.slots[s]
    row = e.rows[c.rows]
    c.rows += 1
    row.req = slot.req
    row.slot = s
    row.computed = slot.computed
    row.sampled = slot.ended == 0
    row.n = 0
    if row.sampled:
        row.n = slot.num_prompt if slot.computed == 0 else 1
        slot.computed += row.n
        if cfg.log:
            emit(c, e.log, ev.SCHEDULED, 0, slot.req, row.n)
            begun = (slot.computed + cfg.cell - 1) // cfg.cell
            if begun > (row.computed + cfg.cell - 1) // cfg.cell:
                emit(c, e.log, ev.WRITTEN, 0, slot.req, begun)
    return row


@splice
def compute(e, cfg, c, step):
    """Rows for everybody who runs. Returns the step's duration in seconds."""
    prefill, decode, padded_prefill, padded_decode, context, attention = 0, 0, 0, 0, 0, 0.0
    c.rows = 0
    for i in range(c.running):
        s = e.running[i]
        row = fill_row(e, cfg, c, s)
        before = row.computed
        padding = 0
        if cfg.static:
            padding = c.batch_prompt - e.slots[s].num_prompt
        if before == 0 and row.sampled:
            n = row.n + padding
            prefill += row.n
            padded_prefill += padding
            context += n
            attention += 0.5 * n * n
        else:
            decode += row.sampled
            padded_decode += 1 - row.sampled
            context += before + padding + 1
            attention += before + padding + 0.5
    step.prefill = prefill
    step.decode = decode
    c.tokens += prefill + decode
    c.padding += padded_prefill + padded_decode
    return step_duration(cfg, prefill + padded_prefill, decode + padded_decode, context, attention)


@splice
def schedule(e, cfg, c, step):
    """One schedule() call. Fills ``e.rows`` and the step row; returns the step's duration in seconds."""
    finish_transfers(e, cfg, c)
    others, admitted, preempted = c.running, 0, 0
    if not cfg.static or others == 0:
        admitted = admit_waiting(e, cfg, c)
        preempted = swap_for_head(e, cfg, c, others)
        if cfg.static:
            begin_batch(e, c)
    step.admitted = admitted
    step.preempted = preempted
    c.preemptions += preempted
    step.duration = compute(e, cfg, c, step)
    return step.duration
