"""Quiet stretches in one loop (simkv/engine/sglang/quiet.py) leave what half turns leave, which never take that way."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from simkv.engine.contract import PROCESSED, SCHEDULED, UNTIL
from simkv.engine.engines import make_engine, resolve_for
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.sglang_settings import SglangSettings
from simkv.engine.step_time import StepTime, linear, roofline, step_index
from simkv.workload.generators import generate
from tests.engine.sglang.cases import draw_config, draw_workload

STATE = ("nodes", "table", "reqs", "queue", "running", "free_slots", "batch", "heap")


def calm_engine(r: Random, *, log: bool = True, max_events: int | None = None) -> SglangEngine:
    """Requests that come one by one, so that most turns only decode."""
    config = draw_config(r, capacity=r.choice([400, 1200, 4000]))
    timed = r.random() < 0.6
    workload = draw_workload(r, config, timed, r.randint(1, 12))
    slower = r.choice([1, 3, 10, 30])
    arrive = workload.arrive * (slower if workload.after is None else np.where(workload.after < 0, slower, 1))
    workload = replace(workload, arrive=arrive)
    step_time: StepTime = linear(r.choice([0.01, 0.003]), r.choice([0.0, 4e-5]), r.choice([0.0, 2e-4])) if timed else step_index()
    if timed and r.random() < 0.5:
        step_time = roofline(SglangSettings(model="Qwen3-0.6B", gpu="L4"))
    return SglangEngine(workload, config, step_time.record(), log=log, max_events=max_events)


def by_half_turns(engine: SglangEngine, until: float = np.inf) -> int:
    while (why := engine.advance(until, pause=True)) in (SCHEDULED, PROCESSED):
        pass
    return why


def assert_same(a: SglangEngine, b: SglangEngine) -> None:
    """The whole state, byte by byte, but for what lies in the logs beyond their ends and which turns share a row."""
    assert len(a.turns) == len(b.turns) == len(b.turns.rows)
    for name in set(a.counters.dtype.names or ()) - {"logged_steps", "logged_ticks"}:
        assert a.counters[name] == b.counters[name], name
    for name in STATE:
        x, y = getattr(a.state, name), getattr(b.state, name)
        for field in x.dtype.names or ("",):
            np.testing.assert_array_equal(x[field] if field else x, y[field] if field else y, f"{name} {field}")
    assert a.free_queue().tolist() == b.free_queue().tolist()
    assert a.gaps.tobytes() == b.gaps.tobytes()
    given_up = {"first_event"} if a.log_dropped else set()  # of a log that is gone
    for name in set(a.steps.dtype.names or ()) - given_up:
        np.testing.assert_array_equal(a.steps[name], b.steps[name], name)
    x, y = a.event_log(), b.event_log()
    assert (x is None) == (y is None)
    if x is not None and y is not None:
        for column in ("rows", "blocks", "keys"):
            assert getattr(x, column).tobytes() == getattr(y, column).tobytes(), column


@pytest.mark.parametrize("seed", range(80))
def test_as_by_half_turns(seed: int) -> None:
    fast, slow = calm_engine(Random(7000 + seed)), calm_engine(Random(7000 + seed))
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)
    fast.check_integrity()


@pytest.mark.parametrize("seed", range(24))
def test_cut_anywhere(seed: int) -> None:
    """A stretch ends at the moment asked for, with everything in its place."""
    r, fast, slow = Random(seed), calm_engine(Random(7500 + seed)), calm_engine(Random(7500 + seed))
    until, why = -1.0, UNTIL
    while why == UNTIL:
        until += r.choice([0.004, 0.03, 0.2]) * (1 if fast.config.virtual else 100)  # else until is in steps
        why = fast.advance(until)
        by_half_turns(slow, until)
        assert_same(fast, slow)


@pytest.mark.parametrize("seed", range(20))
def test_without_log_and_when_the_log_is_given_up(seed: int) -> None:
    for log, most in ((False, None), (True, 30 + seed)):
        fast, slow = (calm_engine(Random(7600 + seed), log=log, max_events=most) for _ in range(2))
        assert fast.advance() == by_half_turns(slow)
        assert_same(fast, slow)


@pytest.mark.parametrize("seed", range(20))
def test_logs_that_grow_again_and_again(seed: int) -> None:
    fast, slow = calm_engine(Random(7700 + seed)), calm_engine(Random(7700 + seed))
    for engine in (fast, slow):
        e = engine.state
        short = {name: getattr(e, name)[:1].copy() for name in ("log", "log_blocks", "log_keys", "steps", "ticks", "gaps")}
        engine.state = e._replace(**{name: array.view(type(getattr(e, name))) for name, array in short.items()})
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)


@pytest.mark.parametrize("page", [1, 16, 128])
def test_long_answers_share_rows(page: int) -> None:
    workload = generate("multi_turn_chat", requests=60, seed=3)
    settings = SglangSettings(page_size=page, max_total_tokens=60_032)
    resolved, step_time = resolve_for(settings, workload), roofline(settings).record()
    fast, slow = (make_engine(workload, resolved, step_time, log=True) for _ in range(2))
    assert fast.advance() == by_half_turns(slow)
    assert_same(fast, slow)
    assert len(fast.steps) > 2000
    assert (len(fast.turns.rows) < len(fast.turns) / 2) == (page > 1)
