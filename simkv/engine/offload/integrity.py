"""What must hold of a host tier between two turns: chunks, pins, copies, and the blocks they hold. For tests and debugging."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import ABORTED, FINISHED
from simkv.engine.offload.layout import B1, B2, COPYING, FIRST_NODE, GIVEN, LOAD, LOADED, LOADING, STORE, SUBMIT, T1, T2
from simkv.engine.offload.manager import nodes_of


def holding_tables(e: Any) -> list[npt.NDArray[np.int32]]:
    """Block tables that hold references besides the running requests': of loading ones, and freed but not yet returned."""
    if e.host is None:
        return []
    hc = e.host.counters[0]
    held = [int(q.slot) for q in e.host.reqs if q.slot >= 0]
    out = [e.tables[s, : e.lengths[s].length] for s in held]
    for i in range(int(hc.deferred_len)):
        entry = e.host.deferred[(int(hc.deferred_head) + i) & (len(e.host.deferred) - 1)]
        out.append(e.tables[entry.slot, : entry.length])
    return out + _pinned(e)


def _pinned(e: Any) -> list[npt.NDArray[np.int32]]:
    """Device blocks that copies of the simple connector pin."""
    if e.simple is None:
        return []
    chains = [(int(job.head), int(job.chunks)) for job in live_jobs(e) if job.direction == STORE]
    chains.append((int(e.simple.pool[0].chain_head), int(e.simple.pool[0].chain_len)))
    out = []
    for head, count in chains:
        chain = chain_of(e.simple.behind, head, count)
        out.append(e.simple.source[chain])
    for q in e.host.reqs:
        if q.load_blocks and q.slot >= 0:
            out.append(e.tables[q.slot, q.load_first : q.load_first + q.load_blocks])
    return out


def chain_of(behind: npt.NDArray[np.int32], head: int, count: int) -> npt.NDArray[np.int32]:
    """Host blocks of one store of the simple connector."""
    chain = np.zeros(count, np.int32)
    for i in range(count):
        chain[i] = head
        head = int(behind[head])
    return chain


def live_jobs(e: Any) -> list[Any]:
    """All transfers that are ordered and have not ended, by number of their order."""
    out, j = [], int(e.host.jobs[0].after)
    while j:
        out.append(e.host.jobs[j])
        j = int(e.host.jobs[j].after)
    return out


def held_slots(e: Any) -> tuple[list[int], list[int]]:
    """Slots of requests that hold blocks without running, and slots whose request left but whose table is still read."""
    if e.host is None:
        return [], []
    own = [int(q.slot) for q in e.host.reqs if q.slot >= 0]
    return own, [s for s in np.flatnonzero(e.host.books["keep"] > 0).tolist() if s not in own]


def check_host(e: Any, c: Any) -> None:
    """Raise AssertionError with a sentence if the host tier's state contradicts itself."""
    hc, reqs = e.host.counters[0], e.host.reqs
    hold = e.host.hold[: int(hc.held)].tolist()
    assert len(set(hold)) == len(hold), "a request waits twice in the holding queue"
    for r in hold:
        q = reqs[r]
        assert q.slot >= 0, f"request {r} is in the holding queue and holds nothing"
        assert e.lengths[q.slot].length > 0, f"request {r} holds no block"
    delayed = [r for r in range(len(e.reqs)) if reqs[r].slot >= 0 and e.reqs[r].status in (FINISHED, ABORTED)]
    assert len(delayed) == int(hc.delayed), "the count of requests aborted while loading is off"
    assert sorted(hold + delayed) == [r for r in range(len(e.reqs)) if reqs[r].slot >= 0], "somebody holds blocks outside the holding queue"
    jobs = live_jobs(e)
    assert len(jobs) + int(hc.spare_jobs) == len(e.host.spare_jobs), "transfers are lost"
    queued = [len(_queue(e, q)) for q in (COPYING + STORE, COPYING + LOAD, SUBMIT, *range(GIVEN, GIVEN + 4))]
    assert sum(queued) == len(jobs), "a transfer stands in no queue or in two"
    ends = [job.end for job in _queue(e, COPYING + STORE)]
    assert ends == sorted(ends), "stores overtake each other"
    if e.native is not None:
        _check_native(e, jobs)
    else:
        _check_simple(e, jobs)
    assert 0 <= hc.hits <= hc.queries, "the host tier hits more than was asked of it"


def _queue(e: Any, q: int) -> list[Any]:
    out, j = [], int(e.host.queues[q].head)
    while j:
        out.append(e.host.jobs[j])
        j = int(e.host.jobs[j].next)
    return out


def _check_native(e: Any, jobs: list[Any]) -> None:
    k, n = e.native.chunks, e.native
    m, capacity = k.manager[0], int(e.host.config[0].chunks)
    resident = [k.nodes[x] for place in (T1, T2) for x in nodes_of(k, place)]
    ghosts = [k.nodes[x] for place in (B1, B2) for x in nodes_of(k, place)]
    ids = [int(x.chunk) for x in resident]
    free = k.free[: int(m.free)].tolist()
    assert sorted(ids + free) == list(range(int(m.fresh))), "a chunk is neither used nor free, or both"
    assert int(m.fresh) <= capacity, "more chunks than there is room"
    keys = [int(x.key) for x in resident + ghosts]
    assert len(set(keys)) == len(keys) == int(np.count_nonzero(k.table)), "a key stands twice, or is not found"
    for place in range(T1, FIRST_NODE):
        assert len(nodes_of(k, place)) == int(k.sizes[place]), "the length of a list is off"
    assert int(m.evictable) == sum(x.ref == 0 for x in resident), "the count of evictable chunks is off"
    writing = [int(x.chunk) for x in resident if x.ref < 0]
    assert int(m.pending) == len(writing), "the count of chunks being written is off"
    assert int(m.spare) == len(k.spare) - len(keys), "nodes are lost"
    live = [job for job in jobs if not job.stale]
    assert int(e.host.counters[0].jobs) == len(live), "the count of transfers is off"
    written: list[int] = []
    fences = np.zeros(len(n.fences), np.int64)
    per = int(e.host.config[0].blocks_per_chunk)
    for job in live:
        if job.direction == LOAD:
            continue
        x = int(job.head)
        while x:
            written.append(int(k.nodes[x].chunk))
            if job.fenced:
                np.add.at(fences, n.sources[written[-1] * per : (written[-1] + 1) * per], 1)
            x = int(k.nodes[x].job_next)
    assert sorted(written) == sorted(writing), "a chunk is being written by no store, or by two"
    assert (fences == n.fences).all(), "the watched blocks differ from those that stores of ended requests read"
    readers = sum(int(job.stop - job.first) for job in live if job.direction == LOAD)
    assert readers == sum(int(x.ref) for x in resident if x.ref > 0), "pins differ from the loads under way"
    loading = [q for q in e.host.reqs if q.loading == LOADING]
    assert len(loading) <= sum(job.direction == LOAD for job in jobs), "a request loads without a transfer"
    for r in range(len(e.reqs)):
        assert int(e.host.reqs[r].jobs) == sum(int(job.req) == r for job in live), f"request {r}: its count of transfers is off"


def _check_simple(e: Any, jobs: list[Any]) -> None:
    m = e.simple
    pool, ref = m.pool[0], m.blocks["ref"]
    queue, b = [], int(m.blocks[0].free_next)
    while b:
        queue.append(b)
        b = int(m.blocks[b].free_next)
    assert len(queue) == int(pool.free), "the number of free host blocks is off"
    assert sorted(queue) == (np.flatnonzero(ref[1:] == 0) + 1).tolist(), "the host's free queue is not its unreferenced blocks"
    pins = np.zeros(len(m.blocks), np.int64)
    chains = [chain_of(m.behind, int(job.head), int(job.chunks)) for job in jobs if job.direction == STORE]
    chains.append(chain_of(m.behind, int(pool.chain_head), int(pool.chain_len)))
    for chain in chains:
        np.add.at(pins, chain, 1)
    assert int(pool.pending_blocks) == sum(map(len, chains)), "the count of blocks being stored is off"
    loads = sum(int(q.load_blocks) for q in e.host.reqs) + sum(int(q.pinned) for q in e.host.reqs)
    assert int(ref[1:].sum()) == int(pins[1:].sum()) + loads, "host references differ from copies and pinned hits"
    assert (ref[1:] >= pins[1:]).all(), "a host block being written is not held"
    used = (m.blocks["keys"][1:] > 0) | (ref[1:] > 0)
    assert int(pool.occupied) == int(np.count_nonzero(used)), "the count of occupied host blocks is off"
    assert int(pool.cached) <= int(np.count_nonzero(m.blocks["keys"])), "more keys than blocks"
    assert all(q.loading in (0, LOADING, LOADED) for q in e.host.reqs)
