"""Quiet stretches in one loop (simkv/engine/vllm/quiet.py) leave what half turns leave, which never take that way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from simkv.engine.contract import PROCESSED, SCHEDULED, UNTIL
from simkv.engine.engines import merge
from simkv.engine.resolve import resolve
from simkv.engine.step_time import for_workload, roofline
from simkv.engine.vllm.engine import VllmEngine
from simkv.settings import EngineSettings
from simkv.workload.generators import generate
from simkv.workload.registry import read_workload
from tests.engine.cases import Case, draw_case

RECORDINGS = sorted((Path(__file__).parent.parent / "golden" / "vllm").rglob("*.input.json*"))


def started(case: Case, *, log: bool = True, max_events: int | None = None) -> VllmEngine:
    return VllmEngine(case.workload, case.settings, case.step_time.record(), log=log, max_events=max_events)


def by_half_turns(engine: VllmEngine) -> int:
    while (why := engine.advance(pause=True)) in (SCHEDULED, PROCESSED):
        pass
    return why


def assert_same(a: VllmEngine, b: VllmEngine) -> None:
    """The whole state, byte by byte, but for what lies in the logs beyond their ends and which turns share a row."""
    assert len(a.turns) == len(b.turns) == len(b.turns.rows)
    for name in set(a.counters.dtype.names or ()) - {"logged_steps", "logged_ticks", "kv_turn"}:
        assert a.counters[name] == b.counters[name], name
    for name in ("reqs", "blocks", "table", "slots", "queue", "running", "free_slots", "adapters", "groups"):
        assert getattr(a.state, name).tobytes() == getattr(b.state, name).tobytes(), name
    for name in a.state.lengths.dtype.names or ():
        np.testing.assert_array_equal(a.state.lengths[name], b.state.lengths[name], name)
    last = 1 - int(a.counters.batch)
    for name in set(a.state.batches.dtype.names or ()) - {"turn"}:
        assert a.state.batches[name][last] == b.state.batches[name][last], name
    rows = int(a.state.batches["rows"][last])
    assert a.state.rows[last, :rows].tobytes() == b.state.rows[last, :rows].tobytes()
    assert a.gaps.tobytes() == b.gaps.tobytes()
    given_up = {"first_event"} if a.log_dropped else set()  # of a log that is gone
    for name in set(a.steps.dtype.names or ()) - given_up:
        np.testing.assert_array_equal(a.steps[name], b.steps[name], name)
    assert a.mark() == b.mark()
    x, y = a.event_log(), b.event_log()
    assert (x is None) == (y is None)
    if x is not None and y is not None:
        assert x.rows.tobytes() == y.rows.tobytes()
        assert x.blocks.tobytes() == y.blocks.tobytes()
        assert x.keys.tobytes() == y.keys.tobytes()


def calm_case(r: Random) -> Case:
    """Requests that come one by one, so that most turns only decode; steps as a roofline or a line tells."""
    case = draw_case(r)
    timed = case.workload.time_unit == "seconds"
    slower = r.choice([1, 3, 10, 30])
    after = case.workload.after
    arrive = case.workload.arrive * (slower if after is None else np.where(after < 0, slower, 1))
    workload = replace(case.workload, arrive=arrive, tie=None)
    settings = case.settings
    if r.random() < 0.7:
        settings = replace(settings, num_gpu_blocks=settings.num_gpu_blocks * 3)
    if timed and r.random() < 0.5:
        return Case(workload, settings, roofline(EngineSettings(model="Qwen3-0.6B", gpu="L4")))
    return Case(workload, settings, case.step_time)


@pytest.mark.parametrize("seed", range(80))
def test_as_by_half_turns(seed: int) -> None:
    case = calm_case(Random(7000 + seed))
    fast, slow = started(case), started(case)
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)


@pytest.mark.parametrize("seed", range(24))
def test_cut_anywhere(seed: int) -> None:
    """A stretch ends at the moment asked for, with everything in its place."""
    case, r = calm_case(Random(7500 + seed)), Random(seed)
    fast, slow = started(case), started(case)
    until, why = -1.0, UNTIL
    while why == UNTIL:
        until += r.choice([0.004, 0.03, 0.2]) * (1 if fast.config.virtual else 100)  # else until is in steps
        why = fast.advance(until)
        while slow.advance(until, pause=True) in (SCHEDULED, PROCESSED):
            pass
        assert_same(fast, slow)


@pytest.mark.parametrize("seed", range(20))
def test_without_log_and_when_the_log_is_given_up(seed: int) -> None:
    case = calm_case(Random(7600 + seed))
    for log, most in ((False, None), (True, 30 + seed)):
        fast, slow = started(case, log=log, max_events=most), started(case, log=log, max_events=most)
        assert fast.advance() == by_half_turns(slow)
        assert_same(fast, slow)


def tight(engine: VllmEngine) -> VllmEngine:
    """The same engine with logs so short that they grow again and again."""
    e = engine.state
    short = {name: getattr(e, name)[:1].copy() for name in ("log", "log_blocks", "log_keys", "steps", "ticks", "gaps")}
    engine.state = e._replace(**{name: array.view(type(getattr(e, name))) for name, array in short.items()})
    return engine


@pytest.mark.parametrize("seed", range(20))
def test_logs_grow_at_the_same_turns(seed: int) -> None:
    case = calm_case(Random(7700 + seed))
    fast, slow = tight(started(case)), tight(started(case))
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)
    for name in ("log", "log_blocks", "log_keys", "gaps"):
        assert len(getattr(fast.state, name)) == len(getattr(slow.state, name)), name


@pytest.mark.parametrize("block_size", [16, 128])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_long_answers(block_size: int, asynchronous: bool) -> None:
    workload = generate("multi_turn_chat", requests=60, seed=3)
    settings = EngineSettings(block_size=block_size, num_gpu_blocks=60_000 // block_size, async_scheduling=asynchronous)
    case = Case(workload, resolve(settings, workload), roofline(settings))
    fast, slow = started(case), started(case)
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)
    assert len(fast.steps) > 2000


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.name.split(".input.json")[0])
def test_recorded_workloads(path: Path) -> None:
    """The recordings are compared by half turns (test_recorded.py); in one go the replay does the same."""
    workload = read_workload(path)
    settings = merge(EngineSettings(), workload)
    resolved = resolve(settings, workload, check_pool=False)
    if resolved.offload is not None:
        pytest.skip("has a host tier, which always goes the long way")
    case = Case(workload, resolved, for_workload(workload, settings))
    fast, slow = started(case), started(case)
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)
