"""How a replay is cut into calls makes no difference: one call, slices of time, half turns, or interpreted."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.engine.step_time import roofline
from simkv.engine.vllm.engine import DONE, SCHEDULED, STALLED, UNTIL, VllmEngine
from simkv.replay import Progress, replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate
from tests.engine.cases import Case, draw_case


def started(case: Case) -> VllmEngine:
    return VllmEngine(case.workload, case.settings, case.step_time.record(), log=True)


def assert_same(a: VllmEngine, b: VllmEngine) -> None:
    assert len(a.turns) == len(b.turns)  # half turns do not share rows
    for name in set(a.counters.dtype.names or ()) - {"logged_steps", "logged_ticks", "kv_turn"}:
        assert a.counters[name] == b.counters[name], name
    assert a.free_queue().tolist() == b.free_queue().tolist()
    assert a.state.reqs.tobytes() == b.state.reqs.tobytes()
    assert a.gaps.tobytes() == b.gaps.tobytes()
    x, y = a.event_log(), b.event_log()
    assert x is not None
    assert y is not None
    assert x.events.tobytes() == y.events.tobytes()
    assert x.keys.tobytes() == y.keys.tobytes()
    for name in x.steps.dtype.names or ():
        np.testing.assert_array_equal(x.steps[name], y.steps[name], name)


@pytest.mark.parametrize("seed", range(40))
def test_slices_of_time(seed: int) -> None:
    case, r = draw_case(Random(1200 + seed)), Random(seed)
    whole, sliced = started(case), started(case)
    end = whole.advance()
    until, why = -1.0, UNTIL
    while (why := sliced.advance(until)) == UNTIL:
        assert sliced.advance(until) == UNTIL, "called again at the same time, nothing more happens"
        until += r.choice([1e-4, 0.003, 0.05, 1.0, 9.0])
    assert why == end
    assert_same(whole, sliced)


@pytest.mark.parametrize("seed", range(20))
def test_half_turns(seed: int) -> None:
    case = draw_case(Random(1300 + seed))
    whole, halves = started(case), started(case)
    end = whole.advance()
    while (why := halves.advance(pause=True)) not in (DONE, STALLED):
        pass
    assert why == end
    assert_same(whole, halves)


def test_time_goes_on_only_as_far_as_told() -> None:
    case = draw_case(Random(8))
    engine = started(case)
    for until in (0.0, 0.05, 0.4):
        engine.advance(until)
        starts = engine.steps["time"]
        assert (starts <= until).all()


def test_a_replay_with_progress_is_the_same_replay() -> None:
    workload = generate("multi_turn_chat", seed=1, requests=80, rate=20.0)
    settings = EngineSettings(num_gpu_blocks=2000, max_num_seqs=8)
    seen: list[Progress] = []

    def look(progress: Progress) -> bool:
        seen.append(progress)
        return True

    a, b = replay(workload, settings), replay(workload, settings, progress=look)
    assert len(seen) > 3
    assert [p.steps for p in seen] == sorted(p.steps for p in seen)
    assert seen[-1].fraction == 1.0
    assert seen[-1].finished == seen[-1].requests == 80
    assert a.counters == b.counters
    assert a.requests.tobytes() == b.requests.tobytes()
    assert (a.status, a.end_time_s) == (b.status, b.end_time_s) == ("complete", a.end_time_s)


def test_a_cancelled_replay_keeps_what_there_is() -> None:
    workload = generate("multi_turn_chat", seed=1, requests=80, rate=20.0)
    run = replay(workload, EngineSettings(num_gpu_blocks=2000, max_num_seqs=8), progress=lambda p: p.finished < 5)
    assert run.status == "partial"
    assert 5 <= run.counters["finished"] < 80
    assert run.log is not None
    assert len(run.steps) == run.counters["turns"]
    assert run.summary()["status"] == "partial"
    assert np.isfinite(run.requests["finish"]).sum() == run.counters["finished"]


@pytest.mark.parametrize("seed", range(6))
def test_a_step_lasts_as_long_as_its_rows_say(seed: int) -> None:
    """The compiled roofline against the one people read, row by row; device and scheduler overlap with async scheduling."""
    made = draw_case(Random(70 + seed))
    step_time = roofline(EngineSettings())
    engine = VllmEngine(made.workload, made.settings, step_time.record(), log=False)
    seen = 0
    while (why := engine.advance(pause=True)) not in (DONE, STALLED) and seen < 300:
        step = engine.steps[-1]
        if why != SCHEDULED or step["schedule"] < 0:
            continue
        rows = engine.state.rows[1 - int(engine.counters.batch)][: int(engine.counters.rows)]
        expected = step_time.seconds([(int(x.computed), int(x.n)) for x in rows])
        assert step["duration"] == pytest.approx(expected, rel=1e-12)
        assert (expected > 0) == (len(rows) > 0)
        seen += 1
    assert seen > 10
