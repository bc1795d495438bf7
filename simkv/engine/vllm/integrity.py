"""check_integrity(): everything that must hold of a replica between two turns. For tests and debugging."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simkv.engine.contract import RUNNING, WAITING
from simkv.engine.offload.integrity import check_host, held_slots, holding_tables
from simkv.engine.vllm.chain import chain_keys
from simkv.engine.vllm.engine import VllmEngine

ENTRY = np.uint64(0xFFFF_FFFF)


def check_integrity(engine: VllmEngine, parents: Mapping[int, int | None] | None = None) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself.

    Blocks: reference counts equal the tables that hold them; free + referenced = pool - 1; the queue holds exactly the
    unreferenced blocks, each once. Keys: the table finds every key and its oldest holder; twins form one ring in which
    each block carries the key; nothing unkeyed is found. Requests: running and waiting lists agree with the states.
    Statistics: hits <= queries. Host tier: simkv/engine/offload/integrity.py.

    Args:
        parents: from :func:`parent_keys`; then also that no cached block of a full-attention group is an orphan: the
            content before it is cached too, in that block or a twin, since a prefix is evicted from its end.
    """
    _blocks(engine)
    keys = _keys(engine)
    _requests(engine)
    if engine.state.host is not None:
        check_host(engine.state, engine.counters)
    if parents is not None:
        _ancestors(parents, keys)
    c = engine.counters
    assert 0 <= c.hits <= c.queries, "hits exceed queries"
    assert 0 <= c.recompute_hits <= c.recompute_queries, "hits of recomputed requests exceed their queries"


def oldest_blocks(engine: VllmEngine) -> dict[int, int]:
    """What a lookup of each cached key finds: key -> block."""
    n, blocks = int(engine.config.num_blocks), engine.state.blocks
    key, owner = blocks["key"].tolist(), blocks["ref"].tolist()
    entries = (engine.state.table[engine.state.table != 0] & ENTRY).tolist()
    return {key[x]: owner[x] if x >= n else x for x in entries}


def keys_of_block(engine: VllmEngine, block: int) -> list[int]:
    """Keys a block carries: its own, then extra ones in order of registration."""
    blocks = engine.state.blocks
    x = int(blocks[block].keys)
    out = [int(blocks[block].key)] if x else []
    while x > 1:
        out.append(int(blocks[x].key))
        x = int(blocks[x].free_next)
    return out


def parent_keys(engine: VllmEngine) -> dict[int, int | None]:
    """For each content the workload can put in a block of a full-attention group: key -> key of the content before it."""
    out: dict[int, int | None] = {}
    full = [g for g in engine.state.groups if g.window == 0]
    for i in range(len(engine.workload)):
        small = chain_keys(engine.workload, i, int(engine.config.hash_block), lora_path=engine.settings.profile.lora_path_in_key).tolist()
        for group in full:
            chain = [k ^ int(group.key) for k in small[int(group.stride) - 1 :: int(group.stride)]]
            out.update(zip(chain, [None, *chain], strict=False))
    return out


def _ancestors(parents: Mapping[int, int | None], keys: set[int]) -> None:
    for key in keys:
        parent = parents.get(key)
        assert parent is None or parent in keys, f"key {key:#x} is cached, the content before it is not"


def _blocks(engine: VllmEngine) -> None:
    e, c, n, groups = engine.state, engine.counters, int(engine.config.num_blocks), int(engine.config.num_groups)
    held = np.zeros(n, np.int64)
    lengths = e.lengths.view(np.ndarray)
    for s in e.running[: int(c.running)].tolist():
        for g in range(groups):
            at = lengths[s * groups + g]
            row = e.tables[s * groups + g, : at["length"]]
            assert (row[: at["trimmed"]] == 0).all(), f"slot {s}: a block left of the window is still held"
            assert (row[at["trimmed"] :] != 0).all(), f"slot {s}: null blocks inside the table"
            assert at["cached"] <= at["length"], f"slot {s}: more blocks registered than held"
            np.add.at(held, row, 1)
    for table in holding_tables(e):
        np.add.at(held, table, 1)
    ref = e.blocks["ref"][:n]
    assert (ref[1:] == held[1:]).all(), "reference counts differ from the block tables"
    queue = engine.free_queue()
    assert len(queue) == int(c.free), "the number of free blocks is off"
    assert np.array_equal(np.sort(queue), np.flatnonzero(ref[1:] == 0) + 1), "the free queue is not the unreferenced blocks, each once"
    assert int(c.free) + int(np.count_nonzero(ref[1:] > 0)) == n - 1, "free + referenced is not pool - 1"
    assert int(c.held) == int(held[1:].sum()), "the count of table entries is off"


def _keys(engine: VllmEngine) -> set[int]:
    """Checks the key table; returns all cached keys."""
    e, c, n = engine.state, engine.counters, int(engine.config.num_blocks)
    key, twin_next, twin_prev = (e.blocks[name].tolist() for name in ("key", "twin_next", "twin_prev"))
    table, found, cached = e.table.tolist(), set[int](), set[int]()
    for at in np.flatnonzero(e.table).tolist():
        entry = table[at] & 0xFFFF_FFFF
        assert table[at] >> 32 == key[entry] & 0xFFFF_FFFF, f"entry {entry}: the table holds another key"
        home = key[entry] & (len(table) - 1)
        assert all(table[p % len(table)] for p in range(home, at + (len(table) if at < home else 0))), f"entry {entry}: a probe stops short"
        assert key[entry] not in cached, f"key {key[entry]:#x} stands twice in the table"
        cached.add(key[entry])
        ring: list[int] = []
        x = entry
        while not ring or x != entry:
            ring.append(x)
            assert len(ring) <= len(key), f"entry {entry}: the twin ring does not close"
            assert key[x] == key[entry], f"entry {x}: a twin with another key"
            assert twin_prev[twin_next[x]] == x, f"entry {x}: the twin ring is broken"
            x = twin_next[x]
        assert not found & set(ring), f"entry {entry}: in two rings"
        found |= set(ring)
    keyed = set(np.flatnonzero(e.blocks["keys"][:n] > 0).tolist())
    assert {x for x in found if x < n} == keyed, "a keyed block is not found, or an unkeyed one is"
    assert len(cached) == int(c.cached), "the number of keys is off"
    owners = e.blocks["ref"]
    assert all(int(owners[x]) in keyed for x in found if x >= n), "an extra key on a block without its own"
    return cached


def _requests(engine: VllmEngine) -> None:
    e, c = engine.state, engine.counters
    status = e.reqs["status"]
    running = e.slots["req"][e.running[: int(c.running)]]
    assert np.array_equal(np.sort(running), np.flatnonzero(status == RUNNING)), "the running list differs from the states"
    positions = np.arange(int(c.wait_len)) if engine.config.priority else (int(c.wait_head) + np.arange(int(c.wait_len))) % len(e.queue)
    waiting = e.queue["waiting"][positions]
    holding = e.host.hold[: int(e.host.counters[0].held)] if e.host is not None else waiting[:0]
    queued = np.concatenate([waiting, holding])
    assert np.array_equal(np.sort(queued), np.flatnonzero(status == WAITING)), "the waiting queue differs from the states"
    assert int(c.unfinished) == len(running) + len(queued), "the count of unfinished requests is off"
    assert (e.reqs["hit"][running] < e.reqs["num_prompt"][running]).all(), "cached more than prompt - 1"
    head = [int(c.head_slot)] if c.head_slot >= 0 else []
    own, kept = held_slots(e)
    slots = [*e.running[: int(c.running)].tolist(), *head, *own, *kept, *e.free_slots[: int(c.free_slots)].tolist()]
    assert sorted(slots) == list(range(len(e.slots))), "slots are lost or used twice"
