"""The index of cached blocks against plain sets, and Dynamo's tree against the real one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.fleet.kv.dynamo_tree import DynamoTree
from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.routing.policy import KVEvents
from simkv.workload.workload import RUN, Workload

STORED, REMOVED, CLEARED = 1, 0, 2
LENGTH = 12
RECORDED = Path(__file__).parent.parent / "golden" / "routers_more" / "dynamo_index"


def prompts(r: Random, families: int = 3) -> Workload:
    """Prompts of 12 blocks of 4 tokens that share beginnings."""
    chains: list[list[int]] = []
    for _ in range(families):
        whole = [r.randrange(1 << 20) for _ in range(LENGTH)]
        chains.append(whole)
        for _ in range(4):
            cut = r.randrange(1, LENGTH - 1)
            branch = whole[:cut] + [r.randrange(1 << 20) for _ in range(LENGTH - cut)]
            cut = r.randrange(1, LENGTH - 1)
            chains += [branch, branch[:cut] + [r.randrange(1 << 20) for _ in range(LENGTH - cut)]]
    n = len(chains)
    runs = np.array([(block, 0, 4) for chain in chains for block in chain], RUN)
    lengths = np.full(n, 4 * LENGTH, np.int32)
    return Workload("prompts", "test", np.zeros(n), lengths, np.zeros(n, np.int32), LENGTH * np.arange(n + 1), runs)


def batch(kind: int, keys: Any, **extra: Any) -> KVEvents:
    return KVEvents(np.full(len(keys), kind, np.uint8), np.array(keys, np.uint64), 4, extra)


@pytest.mark.parametrize("workers", [1, 3, 64, 130])
def test_blocks_that_count_for_themselves(workers: int) -> None:
    r = Random(workers)
    w = prompts(r)
    keys = RequestKeys(w, 4)
    of = [keys.of(i).tolist() for i in range(len(w))]
    index, held = KVIndex(workers, gaps=True), [set[int]() for _ in range(workers)]
    out = np.zeros(workers, np.int32)
    matched = 0
    for _ in range(1500):
        worker, chain = r.randrange(workers), r.choice(of)
        first = r.randrange(LENGTH)
        some = chain[first : first + r.randrange(1, LENGTH)]
        if (roll := r.random()) < 0.6:
            index.apply(worker, batch(STORED, some))
            held[worker] |= set(some)
        elif roll < 0.97:
            index.apply(worker, batch(REMOVED, some))
            held[worker] -= set(some)
        elif roll < 0.985:
            index.apply(worker, batch(CLEARED, [0]))
            held[worker].clear()
        else:
            index.forget(worker)
            held[worker].clear()
        asked = r.randrange(len(w))
        index.count(keys, asked, out)
        expected = [next((n for n, key in enumerate(of[asked]) if key not in mine), LENGTH) for mine in held]
        assert out.tolist() == expected
        matched += any(expected)
        assert len(index) == len(set().union(*held))
    assert matched > 200


@pytest.mark.parametrize("workers", [1, 3, 16, 130])
def test_caches_that_lose_their_blocks_from_the_end(workers: int) -> None:
    r = Random(workers)
    w = prompts(r, 5)
    keys = RequestKeys(w, 4)
    of = [keys.of(i).tolist() for i in range(len(w))]
    index, held = KVIndex(workers), [set[int]() for _ in range(workers)]
    out = np.zeros(workers, np.int32)
    lengths = set()
    for _ in range(3000):
        worker, chain = r.randrange(workers), r.choice(of)
        if r.random() < 0.6:
            some = chain[: r.randrange(1, LENGTH + 1)]
            index.apply(worker, batch(STORED, some))
            held[worker] |= set(some)
        else:
            keep = r.randrange(LENGTH)
            gone = [key for other in of for key in other[keep:][::-1] if other[:keep] == chain[:keep]]
            index.apply(worker, batch(REMOVED, gone))
            held[worker] -= set(gone)
        asked = r.randrange(len(w))
        index.count(keys, asked, out)
        expected = [next((n for n, key in enumerate(of[asked]) if key not in mine), LENGTH) for mine in held]
        assert out.tolist() == expected
        lengths |= set(expected)
    assert lengths == set(range(LENGTH + 1))


def test_it_grows() -> None:
    index = KVIndex(2)
    keys = np.random.default_rng(1).integers(1, 1 << 63, 50_000, np.uint64)
    index.apply(0, batch(STORED, keys))
    index.apply(1, batch(STORED, keys[:100]))
    index.apply(0, batch(REMOVED, keys[50:]))
    assert len(index) == 100
    index.forget(0)
    assert len(index) == 100
    index.forget(1)
    assert len(index) == 0


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json.gz")), ids=lambda p: p.name.split(".")[0])
def test_dynamo_s_tree_as_recorded(path: Path) -> None:
    """Random stores, removals and clears into the real service, and what it then found cached."""
    with gzip.open(path, "rt") as stream:
        recording = json.load(stream)
    chains, tree, asked = recording["chains"], DynamoTree(), 0
    for op, *step in recording["steps"]:
        if op == "s":
            worker, chain, first, stop = step
            tree.store(worker, chains[chain][first - 1] if first else None, chains[chain][first:stop])
        elif op == "r":
            worker, chain, places = step
            tree.remove(worker, [chains[chain][place] for place in places])
        elif op == "c":
            tree.clear(step[0])
        else:
            found = tree.match(chains[step[0]])
            assert [found.get(worker, 0) for worker in range(recording["workers"])] == step[1]
            asked += 1
    assert asked > 150


def test_without_gaps_dynamo_s_tree_counts_blocks() -> None:
    """What a simulation's index does not need the tree for."""
    r = Random(3)
    w = prompts(r, 5)
    keys = RequestKeys(w, 4)
    of = [keys.of(i).tolist() for i in range(len(w))]
    plain, tree = KVIndex(3), KVIndex(3)
    one, other = np.zeros(3, np.int32), np.zeros(3, np.int32)
    held = [set[int]() for _ in range(3)]
    for _ in range(1500):
        worker, chain = r.randrange(3), r.choice(of)
        if r.random() < 0.6:
            n = r.randrange(1, LENGTH + 1)
            known = next((i for i in range(n) if chain[i] not in held[worker]), n)
            kind, some, parent = STORED, chain[known:n], chain[known - 1] if known else 0
            held[worker] |= set(some)
        else:
            keep = r.randrange(LENGTH)
            below = {key for other in of if other[:keep] == chain[:keep] for key in other[keep:]}
            some = sorted(below & held[worker], key=lambda key: -next(c.index(key) for c in of if key in c))
            kind, parent = REMOVED, 0
            held[worker] -= set(some)
        if not some:
            continue
        plain.apply(worker, batch(kind, some))
        tree.apply(worker, batch(kind, some, first=[0], parents=[parent]))
        for asked in range(len(w)):
            plain.count(keys, asked, one)
            tree.count(keys, asked, other)
            assert one.tolist() == other.tolist()
