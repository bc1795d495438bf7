"""The index of cached blocks against plain sets, and against Dynamo's tree in plain Python."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.routing.policy import KVEvents
from simkv.workload.workload import RUN, Workload
from tests.fleet.dynamo_index import DynamoIndex

STORED, REMOVED, CLEARED = 1, 0, 2
LENGTH = 12


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


@pytest.mark.parametrize("seed", range(12))
def test_dynamo_s_tree(seed: int) -> None:
    r = Random(seed)
    workers = seed % 3 + 1
    w = prompts(r)
    keys = RequestKeys(w, 4)
    of = [keys.of(i).tolist() for i in range(len(w))]
    index, model = KVIndex(workers), DynamoIndex()
    out = np.zeros(workers, np.int32)
    matched = 0
    for _ in range(800):
        worker, chain = r.randrange(workers), r.choice(of)
        first = r.randrange(LENGTH) if r.random() < 0.6 else 0
        some = chain[first : first + r.randrange(1, LENGTH)]
        if (roll := r.random()) < 0.5:
            parent = chain[first - 1] if first else None
            index.apply(worker, batch(STORED, some, first=[0], parents=[parent or 0]))
            model.store(worker, parent, some)
        elif roll < 0.98:
            some = some[:2][:: r.choice([1, -1])]
            index.apply(worker, batch(REMOVED, some, first=[0], parents=[0]))
            for key in some:
                model.remove(worker, key)
        else:
            index.apply(worker, batch(CLEARED, [0], first=[0], parents=[0]))
            model.clear(worker)
        for asked in range(len(w)):
            index.count(keys, asked, out)
            found = model.match(of[asked])
            assert out.tolist() == [found.get(worker, 0) for worker in range(workers)]
            matched += max(found.values(), default=0) > 2
    assert matched > 500
