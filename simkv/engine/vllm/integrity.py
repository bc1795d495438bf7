"""check_integrity(): everything that must hold of a replica between two turns. For tests and debugging."""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.engine import VllmEngine
from simkv.engine.vllm.layout import RUNNING, WAITING


def check_integrity(engine: VllmEngine) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself.

    Blocks: reference counts equal the tables that hold them; free + referenced = pool - 1; the queue holds exactly the
    unreferenced blocks, each once. Keys: the table finds every key and its oldest holder; twins form one ring in which
    each block carries the key; nothing unkeyed is found. Full-attention tables: an unevicted block's predecessors in the
    same table are registered before it. Requests: running and waiting lists agree with the states. Statistics: hits <=
    queries.
    """
    _blocks(engine)
    _keys(engine)
    _requests(engine)
    c = engine.counters
    assert 0 <= c.hits <= c.queries, "hits exceed queries"
    assert 0 <= c.recompute_hits <= c.recompute_queries, "hits of recomputed requests exceed their queries"


def _blocks(engine: VllmEngine) -> None:
    e, c, n, groups = engine.state, engine.counters, int(engine.config.num_blocks), int(engine.config.num_groups)
    held = np.zeros(n, np.int64)
    for s in e.running[: int(c.running)]:
        for g in range(groups):
            at = e.lengths[s * groups + g]
            row = e.tables[s * groups + g, : at.length]
            assert (row[: at.trimmed] == 0).all(), f"slot {s}: a block left of the window is still held"
            assert (row[at.trimmed :] != 0).all(), f"slot {s}: null blocks inside the table"
            assert at.cached <= at.length, f"slot {s}: more blocks registered than held"
            np.add.at(held, row, 1)
    ref = e.blocks["ref"][:n]
    assert (ref[1:] == held[1:]).all(), "reference counts differ from the block tables"
    queue = engine.free_queue()
    assert len(queue) == len(set(queue.tolist())) == int(c.free), "the free queue repeats or lacks blocks"
    assert 0 not in queue, "the null block is in the free queue"
    assert set(queue.tolist()) == set((np.flatnonzero(ref[1:] == 0) + 1).tolist()), "the free queue is not the unreferenced blocks"
    assert int(c.free) + int(np.count_nonzero(ref[1:] > 0)) == n - 1, "free + referenced is not pool - 1"
    assert int(c.held) == int(held[1:].sum()), "the count of table entries is off"


def _keys(engine: VllmEngine) -> None:
    e, c, n = engine.state, engine.counters, int(engine.config.num_blocks)
    blocks = e.blocks
    found: set[int] = set()
    for entry in (e.table[e.table != 0] & np.uint64(0xFFFF_FFFF)).tolist():
        ring, x = [], entry
        while True:
            ring.append(x)
            assert blocks[x].key == blocks[entry].key, f"entry {x}: a twin with another key"
            assert blocks[int(blocks[x].twin_next)].twin_prev == x, f"entry {x}: the twin ring is broken"
            x = int(blocks[x].twin_next)
            if x == entry:
                break
        assert not found & set(ring), f"entry {entry}: in two rings"
        found |= set(ring)
    keyed = set(np.flatnonzero(blocks["keys"][:n] > 0).tolist())
    assert {x for x in found if x < n} == keyed, "a keyed block is not found, or an unkeyed one is"
    assert int(np.count_nonzero(e.table)) == int(c.cached), "the number of keys is off"
    for x in (x for x in found if x >= n):
        assert int(blocks[x].ref) in keyed, f"extra key {x} on a block without its own"


def _requests(engine: VllmEngine) -> None:
    e, c = engine.state, engine.counters
    status = e.reqs["status"]
    running = [int(e.slots[s].req) for s in e.running[: int(c.running)]]
    assert sorted(running) == np.flatnonzero(status == RUNNING).tolist(), "the running list differs from the states"
    assert int(c.wait_len) == int(np.count_nonzero(status == WAITING)), "the waiting queue differs from the states"
    assert int(c.unfinished) == len(running) + int(c.wait_len), "the count of unfinished requests is off"
    assert all(int(e.reqs[r].hit) <= max(int(e.reqs[r].num_prompt) - 1, 0) for r in running), "cached more than prompt - 1"
    slots = {int(s) for s in e.running[: int(c.running)]} | ({int(c.head_slot)} if c.head_slot >= 0 else set())
    free = set(e.free_slots[: int(c.free_slots)].tolist())
    assert not slots & free, "a slot is used and free"
    assert len(slots) + len(free) == len(e.slots), "slots are lost"
