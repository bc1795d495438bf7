"""What the engine itself looks like after a turn: what every fold over its log must arrive at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from simkv.engine.vllm.engine import PROCESSED, SCHEDULED, VllmEngine
from simkv.events.folds.pool import PoolState
from simkv.events.log import EventLog
from tests.engine.cases import Case


class Moment(NamedTuple):
    """The engine's own state after a turn."""

    free: list[int]
    ref: list[int]
    key: list[int]
    tables: dict[int, list[list[int]]]


def moment(engine: VllmEngine) -> Moment:
    e, c, groups = engine.state, engine.counters, int(engine.config.num_groups)
    n = int(engine.config.num_blocks)
    blocks = e.blocks[:n].view(np.ndarray)
    tables = {}
    for s in e.running[: int(c.running)].tolist():
        rows = [e.tables[s * groups + g, : int(e.lengths["length"][s * groups + g])].tolist() for g in range(groups)]
        tables[int(e.slots["req"][s])] = rows
    key = np.where(blocks["keys"] > 0, blocks["key"], 0)
    return Moment(engine.free_queue().tolist(), np.maximum(blocks["ref"], 0).tolist(), key.tolist(), tables)


def recorded(case: Case, most_turns: int = 700) -> tuple[VllmEngine, EventLog, list[Moment]]:
    """Run a case; the log and what the engine looked like after every turn."""
    engine = VllmEngine(case.workload, case.settings, case.step_time.record(), log=True)
    moments: list[Moment] = []
    while (why := engine.advance(pause=True)) in (SCHEDULED, PROCESSED) and len(moments) < most_turns:
        if why == PROCESSED:
            moments.append(moment(engine))
    log = engine.event_log()
    assert log is not None
    return engine, log, moments


def same(state: PoolState, expected: Moment) -> None:
    assert state.free_queue().tolist() == expected.free
    ref = state.ref.tolist()
    assert ref[1:] == expected.ref[1:]
    assert state.key.tolist() == expected.key
    assert state.live().tolist() == list(expected.tables)
    for req, rows in expected.tables.items():
        assert [t.tolist() for t in state.tables(req)] == rows
    assert state.usage == pytest.approx(1 - len(expected.free) / (state.num_blocks - 1))
