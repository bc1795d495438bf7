"""What a request under way does to its worker's load, from going there to its end. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry, kernel
from simkv.fleet.kv.prompts import Prompts, descend, drop_unused
from simkv.fleet.kv.request_keys import Keys, blocks_of, need_keys


@kernel
def release(p, req, now):
    """A request is over: its blocks are its worker's no more, unless others hold them."""
    r = p.requests[req]
    if r.worker < 0:
        return
    w = np.int64(r.worker)
    worker = p.workers[w]
    worker.prefill -= r.prefill
    worker.requests -= 1
    worker.units -= r.output
    x = np.int64(r.tail)
    while x != 0:
        p.counts[x, w] -= 1
        p.nodes[x].requests -= 1
        if p.counts[x, w] == 0:
            share = 1.0
            if len(p.shares) > 1:
                share = p.shares[x, w]
                p.shares[x, w] = 1.0
            worker.units -= share * p.nodes[x].blocks
        x = np.int64(p.nodes[x].parent)
    drop_unused(p, np.int64(r.tail), now)
    if worker.requests == 0:
        worker.units = 0.0
    r.worker = -1
    r.outputs = 0
    r.output = 0.0


@entry
def reserve(
    table, nodes, counts, shares, until, arena, meta, workers, requests,
    reqs, runs, tokens, images, cursor, keys,
    req, w, prefill, now, expires,
):  # fmt: skip
    """A request goes to a worker, with ``prefill`` tokens to compute; its prompt counts as cached there until it ``expires``.

    The caller has seen to it that there is room for two nodes and the prompt's keys.
    """
    p = Prompts(table, nodes, counts, shares, until, arena, meta, workers, requests)
    k = Keys(reqs, runs, tokens, images, cursor, keys)
    release(p, req, now)
    n = blocks_of(k, req)
    need_keys(k, req, n)
    tail = descend(p, k.keys, n)
    r, worker = p.requests[req], p.workers[w]
    r.tail, r.worker, r.prefill = tail, w, prefill
    worker.prefill += prefill
    worker.requests += 1
    x = tail
    while x != 0:
        p.counts[x, w] += 1
        p.nodes[x].requests += 1
        if p.counts[x, w] == 1:
            worker.units += p.nodes[x].blocks
        if len(p.until) > 1:
            p.until[x, w] = expires
        x = np.int64(p.nodes[x].parent)


@entry
def prefilled(workers, requests, req):
    """A request's prompt is computed."""
    r = requests[req]
    if r.worker >= 0:
        workers[r.worker].prefill -= r.prefill
        r.prefill = 0


@entry
def finish(table, nodes, counts, shares, until, arena, meta, workers, requests, req, now):
    """Python's way into ``release``."""
    release(Prompts(table, nodes, counts, shares, until, arena, meta, workers, requests), req, now)


@entry
def leave_worker(p, w, now):
    """All requests of a worker are over, and nothing counts as cached there."""
    for req in range(p.requests.size):
        if p.requests[req].worker == w:
            release(p, req, now)
    if len(p.until) > 1:
        for x in range(len(p.until)):
            p.until[x, w] = -np.inf


@entry
def report_output(p, req, share):
    """A request reports a block of output. With a ``share`` (0 … 1, else NaN) all blocks only it holds count so much from now on."""
    r = p.requests[req]
    if r.worker < 0:
        return
    w = np.int64(r.worker)
    worker = p.workers[w]
    r.outputs += 1
    worker.units += 1.0
    r.output += 1.0
    if np.isnan(share):
        return
    worker.units += share * r.outputs - r.output
    r.output = share * r.outputs
    x = np.int64(r.tail)
    while x != 0:
        if p.counts[x, w] == 1:
            worker.units += (share - p.shares[x, w]) * p.nodes[x].blocks
            p.shares[x, w] = share
        x = np.int64(p.nodes[x].parent)
