"""The event log says it all: a fold that knows nothing of V0 arrives at the engine's own blocks, tables and free stack."""

from __future__ import annotations

from random import Random

import pytest

from simkv.engine.contract import PROCESSED, SCHEDULED
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.errors import EngineError
from simkv.events.folds.block_map import FREE, IN_USE, SHARED, STATE_MASK, block_history
from simkv.events.folds.pool import PoolFold
from tests.vllm_v0.cases import case, draw_case, engine


def lanes(e: V0Engine, request: int) -> list[list[int]]:
    """Tables of a running request by lane."""
    s, width = int(e.state.reqs["slot"][request]), e.settings.width
    order = sorted(e.state.order[s, : int(e.state.slots["num_seqs"][s])].tolist())
    return [e.state.tables[s * width + lane, : int(e.state.slots["length"][s])].tolist() for lane in order]


@pytest.mark.parametrize("seed", range(40))
def test_the_fold_follows(seed: int) -> None:
    e = engine(draw_case(Random(31_000 + seed)))
    moments = []
    try:
        while (why := e.advance(pause=True)) in (SCHEDULED, PROCESSED) and len(moments) < 300:
            if why == PROCESSED:
                running = e.state.slots["req"][e.state.running[: int(e.counters.running)]].tolist()
                moments.append((e.free_queue().tolist(), e.state.ref.tolist(), {r: lanes(e, r) for r in running}))
    except EngineError:
        pass
    log = e.event_log()
    assert log is not None
    fold = PoolFold(log)
    for turn, (free, ref, tables) in enumerate(moments):
        state = fold.seek(turn)
        assert state.free_queue().tolist() == free
        assert state.ref.tolist() == ref
        assert sorted(state.live().tolist()) == sorted(tables)
        for r, rows in tables.items():
            assert [t.tolist() for t in state.tables(r)][: len(rows)] == rows


def test_shared_blocks_are_shown_as_shared() -> None:
    e = engine(case([(0, 8, 4)], n=2))
    e.advance()
    log = e.event_log()
    assert log is not None
    history = block_history(log)
    # Prompt of two full blocks, then each sequence writes one of its own; all are free in the end.
    states = [(history.states_at(turn) & STATE_MASK)[1:6].tolist() for turn in range(4)]
    assert states == [
        [SHARED, SHARED, FREE, FREE, FREE],
        [SHARED, SHARED, IN_USE, IN_USE, FREE],
        [SHARED, SHARED, IN_USE, IN_USE, FREE],
        [FREE] * 5,
    ]
