"""OffloadingConnector, scheduler side (vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py, 0.32.0).

Full attention, one KV group. A chunk's key is the key of its last block. Stores are offered in the step that computes
the blocks; device blocks are not pinned for them, but whoever gets one of them meanwhile waits (fences, flush).
"""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.chunks import find_chunk
from simkv.engine.offload.compiled import inline, kernel, splice
from simkv.engine.offload.fences import fence, flush_victims, mark_handed_out, reads_marked
from simkv.engine.offload.holding import forget_book
from simkv.engine.offload.host import MISS, PENDING, look_up, pin_chunk, prepare_store, recency_of_key
from simkv.engine.offload.layout import LOAD, STORE
from simkv.engine.offload.trace import T_ALLOC, T_ENDED, T_GET, T_OFFER, T_PIN, note
from simkv.engine.offload.worker import new_job
from simkv.engine.vllm.keys import block_keys
from simkv.engine.vllm.pool import emit
from simkv.events import layout as ev

LATER = -1
"""Answer to a lookup: ask again in a later step."""


@inline
def key_of_chunk(e, h, s, i):
    return e.keys[s, (i + 1) * h.config[0].blocks_per_chunk - 1]


@inline
def use_flags(h, n, r):
    """The request is about to do something with chunks; forget what it did before the last reset."""
    q, k = h.reqs[r], n.chunks
    if q.generation != k.manager[0].generation:
        q.generation = k.manager[0].generation
        q.used = 0
        for i in range(q.first_chunk, h.reqs[r + 1].first_chunk):
            k.flags[i] = 0
    q.used = 1


@inline
def answer(h, r, local, found, looked):
    """Write a lookup's answer into the trace, before the chunks it looked at."""
    note(h, T_GET)
    note(h, r)
    note(h, local)
    note(h, found)
    note(h, looked)


@splice
def run_of_chunks(h, n, e, cfg, s, r, local):
    """``(tokens the host tier adds to the local hit or LATER, chunks looked at)``."""
    cf, q, k = h.config[0], h.reqs[r], n.chunks
    size, num_tokens = cf.chunk_tokens, np.int64(e.slots[s].num_tokens)
    most = num_tokens
    if q.max_load >= 0:
        most = min(most, local + q.max_load)
    chunks = num_tokens // size
    most = min(most, chunks * size)
    if q.max_load >= 0:
        most = most // size * size
    if most - local < size:
        return 0, 0
    first = local // size
    run, looked, later = 0, 0, False
    for i in range(first, min((most + size - 1) // size, chunks)):
        x = look_up(k, key_of_chunk(e, h, s, i))
        looked += 1
        if x == MISS:
            break
        run += 1
        later = later or x == PENDING
    if later:
        return LATER, looked
    most = min(most, size * (first + run))
    if run == 0 or most - local < size:
        return 0, looked
    if cfg.caching:
        for i in range(first, (most + size - 1) // size):
            if k.nodes[find_chunk(k, key_of_chunk(e, h, s, i))].loading:
                return LATER, looked
    return most - local, looked


@splice
def native_hit(h, n, e, cfg, c, s, r, local):
    """get_num_new_matched_tokens(): tokens to load behind the local hit, or LATER."""
    q = h.reqs[r]
    forget_book(h, e, c, r)
    if q.jobs > 0:
        answer(h, r, local, LATER, 0)
        return LATER
    q.local = local
    found, looked = 0, 0
    if e.reqs[r].skip_cache == 0:
        found, looked = run_of_chunks(h, n, e, cfg, s, r, local)
    answer(h, r, local, found, looked)
    for i in range(local // h.config[0].chunk_tokens, local // h.config[0].chunk_tokens + looked):
        note(h, look_up(n.chunks, key_of_chunk(e, h, s, i)))
    return found


@splice
def native_load(h, n, e, cfg, c, s, r, tokens):
    """update_state_after_alloc(): order the load of ``tokens`` behind the local hit into the request's last blocks."""
    note(h, T_ALLOC)
    note(h, r)
    note(h, tokens)
    if tokens == 0:
        return
    cf, q, k, hc = h.config[0], h.reqs[r], n.chunks, h.counters[0]
    size, total = cf.chunk_tokens, q.local + tokens
    first_block = q.local // cfg.hash_block
    first, stop = first_block // cf.blocks_per_chunk, (total + size - 1) // size
    q.next_chunk = stop
    use_flags(h, n, r)
    note(h, T_PIN)
    note(h, r)
    note(h, first)
    note(h, stop)
    for i in range(first, stop):
        x = pin_chunk(k, key_of_chunk(e, h, s, i), q.first_chunk + i)
        k.nodes[x].loading = cfg.caching
        note(h, k.nodes[x].chunk)
    blocks = (total + cfg.hash_block - 1) // cfg.hash_block - first_block
    j = new_job(h, r, LOAD, c.batch, blocks)
    job = h.jobs[j]
    job.first, job.stop, job.chunks, job.head = first, stop, stop - first, first_block
    q.jobs += 1
    hc.loads += 1
    hc.load_blocks += blocks
    hc.loading += blocks
    if cfg.log:
        emit(c, e.log, ev.LOAD_STARTED, 0, r, blocks)


@splice
def log_offer(h, n, e, cfg, c, r, first, stop, new):
    """Trace and events of an offer: what went, what is to come."""
    k, hc = n.chunks, h.counters[0]
    note(h, T_OFFER)
    note(h, r)
    note(h, first)
    note(h, stop)
    note(h, new)
    for i in range(new):
        note(h, first + k.nodes[k.taken[i]].offer)
    for i in range(new):
        note(h, k.nodes[k.taken[i]].chunk)
    gone = k.manager[0].evicted
    note(h, k.manager[0].wanted)
    note(h, gone)
    hc.removed += gone
    for i in range(gone):
        note(h, k.picks[i])
        if cfg.log:
            emit(c, e.log, ev.HOST_REMOVED, 0, -1, k.picks[i])


@kernel
def offer_chunks(h, n, e, cfg, c, s, r, stop, ended, stamp):
    """Offer the chunks up to ``stop`` of the request whose table stands in slot ``s``; order the copy of what is taken."""
    cf, hc, q, k = h.config[0], h.counters[0], h.reqs[r], n.chunks
    first = np.int64(q.next_chunk)
    use_flags(h, n, r)
    for i in range(first, stop):
        k.offer[i - first] = key_of_chunk(e, h, s, i)
        k.places[i - first] = q.first_chunk + i
    new = prepare_store(k, cf, stop - first)
    log_offer(h, n, e, cfg, c, r, first, stop, new)
    if new < 0:
        hc.refused += 1
        return
    q.next_chunk = stop
    if new == 0:
        return
    size = cf.blocks_per_chunk
    j = new_job(h, r, STORE, c.batch, new * size)
    job = h.jobs[j]
    job.head, job.chunks, job.first = k.taken[0], new, first + k.nodes[k.taken[0]].offer
    for i in range(new):
        node = k.nodes[k.taken[i]]
        node.job_next = k.taken[i + 1] if i + 1 < new else 0
        at = (first + node.offer) * size
        for b in range(size):
            n.sources[node.chunk * size + b] = e.tables[s, at + b]
    q.jobs += 1
    hc.stores += 1
    hc.store_blocks += new * size
    if cfg.log:
        emit(c, e.log, ev.STORE_STARTED, 0, r, new)
    if ended:
        fence(h, n, j, 1)
        if reads_marked(h, n, j, stamp):
            job.flush |= 1 << c.batch


@inline
def storable(h, e, s, r, tokens):
    """How many chunks may be offered once so many tokens are computed."""
    cf, q = h.config[0], h.reqs[r]
    if q.max_store >= 0:
        tokens = min(tokens, q.max_store)
    if cf.prompt_only:
        tokens = min(tokens, e.reqs[r].num_prompt)
    return min(tokens // cf.chunk_tokens, h.books[s].length // cf.blocks_per_chunk)


@splice
def recall(h, n, e, cfg, c, r):
    """on_request_finished(): the chunks the request used become recent, its head most."""
    cf, q, k = h.config[0], h.reqs[r], n.chunks
    note(h, T_ENDED)
    note(h, r)
    q.signaled = 1
    if q.used and q.generation == k.manager[0].generation:
        stop = h.reqs[r + 1].first_chunk - q.first_chunk
        keys = h.keys
        if q.book >= 0:
            keys = e.keys[q.book]
        else:
            req = e.reqs[r]
            block_keys(req, e.runs, e.tokens, e.images, cfg.hash_block, stop * cf.blocks_per_chunk, keys)
        for i in range(stop - 1, -1, -1):
            recency_of_key(k, cf, keys[(i + 1) * cf.blocks_per_chunk - 1], q.first_chunk + i)
    forget_book(h, e, c, r)


@splice
def native_build(h, n, e, cfg, c, rows):
    """build_connector_meta(): what this step copies, and what it must wait for."""
    hc = h.counters[0]
    stamp = c.steps + 1
    flush_victims(h, c)
    if hc.crashed:
        return
    if (hc.fenced > 0 or hc.ended > 0) and mark_handed_out(h, n, e, cfg, c, rows, stamp):
        j = np.int64(h.jobs[0].after)
        while j > 0:
            if h.jobs[j].fenced > 0 and reads_marked(h, n, j, stamp):
                h.jobs[j].flush |= 1 << c.batch
            j = np.int64(h.jobs[j].after)
    for i in range(c.rows):
        row = rows[i]
        s, r = np.int64(row.slot), np.int64(row.req)
        h.books[s].length = e.lengths[s].length
        stop = storable(h, e, s, r, min(np.int64(row.computed) + row.n, np.int64(e.slots[s].num_tokens)))
        if stop > h.reqs[r].next_chunk:
            offer_chunks(h, n, e, cfg, c, s, r, stop, False, stamp)
    for i in range(hc.ended):
        r = np.int64(h.ended[i])
        s = np.int64(h.reqs[r].book)
        if h.reqs[r].gone or s < 0:
            continue
        stop = storable(h, e, s, r, np.int64(h.reqs[r].end_tokens))
        if stop > h.reqs[r].next_chunk:
            offer_chunks(h, n, e, cfg, c, s, r, stop, True, stamp)
    for i in range(hc.ended):
        r = np.int64(h.ended[i])
        if not h.reqs[r].gone:
            recall(h, n, e, cfg, c, r)
            h.reqs[r].gone = h.reqs[r].jobs == 0
