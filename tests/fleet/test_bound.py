"""Replicas advanced together go the way each goes alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.engine.contiguous.engine import ContiguousEngine
from simkv.engine.contract import CRASHED, DONE, STALLED, UNTIL
from simkv.engine.vllm.engine import VllmEngine
from simkv.fleet.bound import ReplicaTable
from tests.engine.cases import draw_case
from tests.engine.contiguous.cases import draw_case as draw_contiguous
from tests.engine.sglang.cases import draw_engine as draw_sglang


def vllm(r: Random) -> Any:
    case = draw_case(r)
    return VllmEngine(case.workload, case.settings, case.step_time.record(), log=True)


def contiguous(r: Random) -> Any:
    case = draw_contiguous(r)
    return ContiguousEngine(case.workload, case.settings, case.step_time.record(), log=True)


KINDS: tuple[Callable[[Random], Any], ...] = (vllm, draw_sglang, contiguous, vllm)


def engines(seed: int) -> list[Any]:
    return [make(Random(100 * seed + i)) for i, make in enumerate(KINDS)]


def assert_same(a: Any, b: Any) -> None:
    assert len(a.turns) == len(b.turns)  # single turns do not share rows
    for name in set(a.counters.dtype.names) - {"logged_steps", "logged_ticks", "kv_turn"}:
        assert a.counters[name] == b.counters[name], name
    assert a.free_queue().tolist() == b.free_queue().tolist()
    assert a.state.reqs.tobytes() == b.state.reqs.tobytes()
    assert a.gaps.tobytes() == b.gaps.tobytes()
    x, y = a.event_log(), b.event_log()
    assert x.rows.tobytes() == y.rows.tobytes()
    assert x.blocks.tobytes() == y.blocks.tobytes()
    assert x.keys.tobytes() == y.keys.tobytes()
    for name in x.steps.dtype.names:
        np.testing.assert_array_equal(x.steps[name], y.steps[name], name)


@pytest.mark.parametrize("seed", range(15))
def test_together_as_alone(seed: int) -> None:
    together, alone, r = engines(seed), engines(seed), Random(seed)
    table, until = ReplicaTable(together), -1.0
    while any(why == UNTIL for why in table.reasons):
        table.advance(until)
        assert [e.advance(until) for e in alone] == table.reasons.tolist()
        until += r.choice([1e-4, 0.003, 0.05, 1.0, 9.0])
    for a, b in zip(together, alone, strict=True):
        assert_same(a, b)


def test_only_some() -> None:
    together, alone = engines(1), engines(1)
    table = ReplicaTable(together)
    table.advance(np.inf, only=[0, 2])
    assert [int(e.counters.turns) > 0 for e in together] == [True, False, True, False]
    table.advance(np.inf)
    for a, b in zip(together, alone, strict=True):
        b.advance()
        assert_same(a, b)


@pytest.mark.parametrize("seed", range(15))
def test_turn_by_turn_in_order_of_time(seed: int) -> None:
    together, alone, table = engines(seed), engines(seed), ReplicaTable([])
    for slot, engine in enumerate(together):
        table.replace(slot, engine)
    begun: list[float] = []
    until = float(Random(seed).choice([0.02, 3.0]))
    while (slot := table.step_first(until)) is not None:
        turns = together[slot].steps["time"]
        begun.append(float(turns[-1]))
    assert begun == sorted(begun)
    assert max(begun, default=0.0) <= until
    assert table.step_first(until) is None
    for a, b in zip(together, alone, strict=True):
        b.advance(until)
        a.advance(until)
        assert_same(a, b)
    while table.step_first(np.inf) is not None:
        pass
    assert set(table.reasons.tolist()) <= {DONE, STALLED, CRASHED}


def ended(engines: list[Any]) -> list[int]:
    return [int(e.counters.finished + e.counters.aborted + e.counters.rejected) for e in engines]


@pytest.mark.parametrize("seed", range(8))
def test_up_to_the_next_end(seed: int) -> None:
    together, alone = engines(seed), engines(seed)
    table, by_turns = ReplicaTable(together), ReplicaTable(alone)
    until = float(Random(seed).choice([0.3, 5.0, np.inf]))
    while True:
        before = ended(together)
        last = table.run_to_an_end(until)
        expected = None
        while (slot := by_turns.step_first(until)) is not None:
            expected = slot
            if ended(alone) != before:
                break
        assert last == expected
        for a, b in zip(together, alone, strict=True):
            assert_same(a, b)
        if last is None:
            break
        assert table.earliest() == by_turns.earliest()


def test_work_given_in_between() -> None:
    """A replica with nothing to do is not called again before it is given something."""
    engine = vllm(Random(4))
    table = ReplicaTable([engine])
    late = np.flatnonzero(engine.state.reqs["arrive"] > 0)[-1]
    engine.state.reqs["chained"][late] = 1
    table.advance(np.inf)
    turns = int(engine.counters.turns)
    table.advance(np.inf)
    assert (table.reasons[0], int(engine.counters.turns)) == (DONE, turns)
    engine.state.reqs["arrive"][late] = float(engine.counters.now) + 7.0
    engine.state.queue["timer"][0] = late
    engine.counters.timers += 1
    table.advance(np.inf)
    assert int(engine.counters.turns) > turns


def test_interpreted() -> None:
    said = subprocess.run([sys.executable, "-c", INTERPRETED], env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert said.stdout.split() == ["same", "1", "1", "1"], said.stderr


INTERPRETED = """
from simkv.engine.engines import make_engine, resolve_for
from simkv.engine.step_time import linear
from simkv.fleet.bound import ReplicaTable
from simkv.settings import EngineSettings
from simkv.workload.generators import generate

w, s = generate("shared_system_prompt", requests=2), EngineSettings(num_gpu_blocks=400, max_num_seqs=2)
a, b, c = (make_engine(w, resolve_for(s, w), linear(0.01, 0.0, 0.0).record(), log=True) for _ in range(3))
table = ReplicaTable([a, None, b])
table.advance(0.3, only=[0])
table.step_first(3.0)
table.run_to_an_end(9.0)
table.advance(float("inf"))
c.advance()
print("same" if a.event_log().rows.tobytes() == b.event_log().rows.tobytes() == c.event_log().rows.tobytes() else "differs", *table.reasons)
"""


def test_slots_without_a_replica() -> None:
    gone, stays = engines(2)[:2]
    table = ReplicaTable([gone, None, stays])
    table.advance(0.01)
    before = int(gone.counters.turns)
    table.replace(0, None)
    assert table.reasons[0] == DONE
    table.advance(np.inf)
    assert table.step_first(np.inf) is None
    assert int(gone.counters.turns) == before
    assert stays.counters.unfinished == 0
    fresh = engines(3)[0]
    table.replace(3, fresh)
    assert table.reasons[3] == UNTIL
    table.advance(np.inf)
    assert fresh.counters.unfinished == 0
