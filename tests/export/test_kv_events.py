"""From placement rows to vLLM's KV events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from simkv.events import layout as kind
from simkv.events.digests import Digests
from simkv.events.export.kv_events import KVEventFold, kv_events, rows
from simkv.events.types import AllBlocksCleared, BlockRemoved, BlockStored

HEADER = {"hash_block_size": 16, "groups": [{"type": "full", "window": None, "block_size": 16}]}


def test_cached_set_never_goes_negative_and_ends_as_the_engine_says(run: Any, digests: Digests) -> None:
    held: Counter[bytes] = Counter()
    stored = removed = 0
    for _, event in kv_events(run.log, digests):
        if isinstance(event, BlockStored):
            held.update(event.block_hashes)
            stored += len(event.block_hashes)
        else:
            assert isinstance(event, BlockRemoved)
            held.subtract(event.block_hashes)
            removed += len(event.block_hashes)
            assert all(held[h] >= 0 for h in event.block_hashes)
    assert (stored, removed) == (int(run.steps["stored"].sum()), int(run.steps["removed"].sum()))
    assert held.total() == int(run.steps["cached"][-1])


def test_stored_blocks_continue_the_chain_of_their_tokens(run: Any, digests: Digests) -> None:
    parent_of: dict[bytes, bytes | None] = {}
    for _, event in kv_events(run.log, digests):
        if isinstance(event, BlockStored):
            assert len(event.token_ids) == event.block_size * len(event.block_hashes)
            before = event.parent_block_hash
            assert before is None or before in parent_of
            for digest in event.block_hashes:
                assert parent_of.setdefault(digest, before) == before
                before = digest


def test_steps_are_those_of_the_log(run: Any, digests: Digests) -> None:
    stored: Counter[int] = Counter()
    for step, event in kv_events(run.log, digests):
        if isinstance(event, BlockStored):
            stored[step] += len(event.block_hashes)
    assert [stored[s] for s in range(len(run.steps))] == run.steps["stored"].tolist()


def test_rows_name_every_event_once_in_order(run: Any) -> None:
    everything = list(rows(run.log))
    assert len(everything) == len(run.log.events)
    assert [row[1] for row in everything] == run.log.events["req"].tolist()
    steps = np.array([row[0] for row in everything])
    assert (np.diff(steps) >= 0).all()
    only = [row for row in everything if row[3] == kind.STORED]
    assert list(rows(run.log, (kind.STORED,))) == only


def test_reset_forgets_every_key(run: Any, digests: Digests) -> None:
    fold = KVEventFold(HEADER, digests)
    assert fold.row(0, 1, kind.STORE, 0) == []
    assert fold.row(0, 5, kind.STORED, 0) == []
    stored, cleared = fold.row(-1, 0, kind.CLEARED, 0)
    assert isinstance(stored, BlockStored)
    assert isinstance(cleared, AllBlocksCleared)
    with pytest.raises(KeyError):
        fold.row(0, 5, kind.RECYCLED, 0)


def test_a_stored_row_without_its_header_is_refused(digests: Digests) -> None:
    with pytest.raises(ValueError, match="without its store row"):
        KVEventFold(HEADER, digests).row(0, 5, kind.STORED, 0)
