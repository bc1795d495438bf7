"""The index of cached blocks against a plain dict: any events of any workers, in a table so small that it grows all the time."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.fleet.kv import kv_index as module
from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.routing.policy import KVEvents

REMOVED, STORED, CLEARED, FORGET = 0, 1, 2, 3
FEW, MANY = (0, 64), (0, 1, 2, 62, 63, 64, 65, 129)
"""Of few workers, blocks often lose the last one; of many, one that is kept gives way to others."""
HOMES = (0, 1, 2, 13, 14, 15, 30, 31, 62, 63)
"""Low bits of keys: many begin their search at the same place, or at the end of a table, as long as it is small."""

keys = st.builds(lambda home, high: home + 64 * high, st.sampled_from(HOMES), st.integers(1, 4))
kinds = st.sampled_from([STORED] * 8 + [REMOVED] * 5 + [CLEARED])


def steps_of(workers: tuple[int, ...]) -> Any:
    """Batches of a worker's events, and workers that leave."""
    worker = st.sampled_from(workers)
    batch = st.tuples(worker, st.lists(st.tuples(kinds, keys), min_size=1, max_size=60))
    return st.lists(st.one_of(batch, batch, batch, st.tuples(worker, st.just(FORGET))), min_size=5, max_size=25)


def small() -> Any:
    """Tables that begin with 16 places and move to other memory every second time they grow."""
    return patch.multiple(module, FIRST_PLACES=16, ROOM=2)


def held(index: KVIndex) -> dict[int, set[int]]:
    """All that an index knows: the workers of each key."""
    ix = index.state
    rows = [row for row in ix.rows[: ix.places].tolist() if row[0]]
    found = {key: {64 * i + b for i, word in enumerate(words) for b in range(64) if int(word) >> b & 1} for key, words in rows}
    assert len(found) == len(rows) == len(index)
    assert not ix.rows[ix.places :].view(np.uint8).any()
    return found


def orders(index: KVIndex) -> dict[int, list[int]]:
    """The workers of each key that several hold, the latest first."""
    o = index.state.orders
    if o is None:
        return {}
    found = {row["key"].item(): [int(w) - 1 for w in row["latest"] if w] for row in o.rows[: o.places] if row["key"]}
    assert len(found) == o.meta[0].live
    assert not o.rows[o.places :].view(np.uint8).any()
    return found


def apply_to(model: dict[int, list[int]], worker: int, kind: int, key: int, most: int) -> None:
    """One event; a key's workers are listed the latest first."""
    for k in [key] if kind in (STORED, REMOVED) else list(model):
        rest = [w for w in model.get(k, []) if w != worker]
        model[k] = [worker, *rest][:most] if kind == STORED else rest
        if not model[k]:
            del model[k]


@pytest.mark.parametrize(("workers", "most"), [(FEW, None), (FEW, 1), (MANY, None), (MANY, 3), (MANY, 5)])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_events(data: st.DataObject, workers: tuple[int, ...], most: int | None) -> None:
    model: dict[int, list[int]] = {}
    with small():
        index = KVIndex(130, most=most)
        for worker, events in data.draw(steps_of(workers)):
            if events == FORGET:
                index.forget(worker)
                apply_to(model, worker, FORGET, 0, 0)
                continue
            kinds, keys = [kind for kind, _ in events], [0 if kind == CLEARED else key for kind, key in events]
            index.apply(worker, KVEvents(np.array(kinds, np.uint8), np.array(keys, np.uint64), 16))
            for kind, key in zip(kinds, keys, strict=True):
                apply_to(model, worker, kind, key, most or len(workers))
            assert held(index) == {key: set(workers) for key, workers in model.items()}
            assert orders(index) == ({key: workers for key, workers in model.items() if len(workers) > 1} if most else {})


def test_a_table_that_grows_in_place() -> None:
    """Every key is still found, from a table of 16 places to one of thousands, with many rows far from where they belong."""
    rng = np.random.default_rng(7)
    keys = np.unique(rng.integers(1, 1 << 63, 5000, np.uint64) & ~np.uint64(0b1110))
    rng.shuffle(keys)
    for workers, most in ((2, None), (300, 2)):
        with small():
            index = KVIndex(workers, most=most)
            for part in np.array_split(keys, 40):
                index.apply(0, KVEvents(np.full(len(part), STORED, np.uint8), part, 16))
            index.apply(1, KVEvents(np.full(len(keys), STORED, np.uint8), keys, 16))
        assert held(index) == {key: {0, 1} for key in keys.tolist()}
        assert orders(index) == ({key: [1, 0] for key in keys.tolist()} if most else {})
