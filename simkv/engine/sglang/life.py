"""A request's KV from its first page to its last (mem_cache/common.py and unified_radix_cache.py, checkpoint_into_tree, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel
from simkv.engine.sglang.evict import evict_until
from simkv.engine.sglang.layout import NONE, ROOT
from simkv.engine.sglang.log import emit, emit_pages
from simkv.engine.sglang.pages import give_back
from simkv.engine.sglang.tree import insert, lock, unlock
from simkv.events import layout as ev

RETRACT_STEPS = 20
"""Decode steps for which room is made when a request is thrown back (SGLANG_RETRACT_DECODE_STEPS)."""


@kernel
def checkpoint(e, cfg, c, r, upto):
    """Put the request's first ``upto`` computed tokens into the tree and lock them there.

    Beyond the prompt the leaf is split at its end, and the prompt ranks one priority higher: eviction can drop the output alone.
    """
    if not cfg.caching:
        return
    req = e.reqs[r]
    row = e.rows[req.slot]
    run, namespace, priority = np.int64(req.first_run), np.int64(req.namespace), np.int64(req.priority)
    pages = upto // cfg.page
    _, node = insert(e, cfg, c, r, run, namespace, pages, row, np.int64(req.protected), np.int64(req.inserted), priority)
    req.inserted = max(req.inserted, pages)
    prompt = req.num_prompt // cfg.page
    if 0 < prompt < pages:
        insert(e, cfg, c, r, run, namespace, prompt, row, prompt, prompt, priority + 1)
    if req.lock >= 0:
        unlock(e, cfg, c, np.int64(req.lock))
    lock(e, cfg, c, node)
    req.lock = node
    req.protected = pages
    req.last_node = node


@kernel
def release(e, cfg, c, r):
    """The request gives up its row: what the tree has stays cached, the rest is free."""
    req = e.reqs[r]
    row = e.rows[req.slot]
    last = (req.committed + cfg.page - 1) // cfg.page
    if cfg.log:
        emit_pages(e, c, ev.RELEASED, r, row, 0, np.int64(req.protected))
    give_back(e, cfg, c, r, row, np.int64(req.protected), last)
    if req.lock >= 0:
        unlock(e, cfg, c, np.int64(req.lock))
    req.lock = NONE
    e.free_slots[c.free_slots] = req.slot
    c.free_slots += 1
    c.running -= 1
    c.held -= last
    req.slot = NONE
    req.committed = 0


@kernel
def throw_back(e, cfg, c, r, others):
    """Release a running request without keeping anything, and make room for ``others`` to go on (release_req)."""
    release(e, cfg, c, r)
    evict_until(e, cfg, c, others * RETRACT_STEPS)
    req = e.reqs[r]
    req.prefix = 0
    req.protected = 0
    req.inserted = 0
    req.matched = 0
    req.extend_end = 0
    req.middle_chunks = 0
    req.last_node = ROOT
    req.preempted += 1
    c.preemptions += 1
    if cfg.log:
        emit(c, e.log, ev.PREEMPTED, 0, r, 0)
