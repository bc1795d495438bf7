"""The logs grow before a turn that could overflow them, and a run whose log is too long goes on without it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.engine.contract import DONE, PROCESSED, SCHEDULED
from simkv.engine.step_time import linear
from simkv.engine.vllm.state import empty
from simkv.events.layout import EVENT, GAP, STEP
from simkv.replay import replay
from simkv.settings import ContiguousSettings
from tests.engine.contiguous.cases import draw_case, requests
from tests.engine.contiguous.test_against_reference import engine_of


@pytest.mark.parametrize("seed", range(12))
def test_no_turn_writes_more_than_was_reserved(seed: int) -> None:
    engine = engine_of(draw_case(Random(500 + seed)))
    before = 0
    while (why := engine.advance(pause=True)) in (SCHEDULED, PROCESSED):
        if why == SCHEDULED:
            room = int(engine.counters.need_events)
        else:
            assert int(engine.counters.events) - before <= room
            before = int(engine.counters.events)
    assert why == DONE


@pytest.mark.parametrize("seed", range(6))
def test_logs_that_start_with_no_room_end_alike(seed: int) -> None:
    case = draw_case(Random(600 + seed))
    roomy, tight = engine_of(case), engine_of(case)
    small = {"log": empty(1, EVENT), "log_blocks": np.empty(1, np.int32), "steps": empty(1, STEP), "gaps": empty(1, GAP)}
    tight.state = tight.state._replace(**small)
    assert roomy.advance() == tight.advance() == DONE
    one, other = roomy.event_log(), tight.event_log()
    assert one is not None
    assert other is not None
    assert np.array_equal(one.events, other.events)
    assert np.array_equal(roomy.gaps, tight.gaps)
    assert all(np.array_equal(roomy.steps[name], tight.steps[name]) for name in STEP.names or ())


def test_too_many_events_end_the_log_not_the_run() -> None:
    s = ContiguousSettings(block_size=1, num_gpu_blocks=257, max_model_len=64)
    workload = requests([20] * 30, [20] * 30)
    whole, cut = (replay(workload, s, linear(0.01, 0.0, 0.0), max_events=most) for most in (None, 500))
    assert cut.log is None
    assert any("given up beyond 500 events" in note for note in cut.notes)
    assert np.array_equal(whole.requests, cut.requests)
