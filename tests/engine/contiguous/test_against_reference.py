"""The compiled baselines beside the slow reference: who is admitted when, to which cells, and what becomes of everybody."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simkv.engine.contiguous.engine import ContiguousEngine
from simkv.engine.contract import DONE, PROCESSED, SCHEDULED, STATUS
from simkv.events import layout as ev
from simkv.latency import inter_token_gaps
from tests.engine.contiguous.cases import Case, draw_case
from tests.engine.contiguous.reference import Reference


def engine_of(case: Case, log: bool = True) -> ContiguousEngine:
    return ContiguousEngine(case.workload, case.settings, case.step_time.record(), log=log)


def run_checked(engine: ContiguousEngine, most_half_turns: int = 20_000) -> int:
    """To the end in half turns; whatever holds between turns is checked after each."""
    for _ in range(most_half_turns):
        why = engine.advance(pause=True)
        engine.check_integrity()
        if why not in (SCHEDULED, PROCESSED):
            return why
    raise AssertionError("no end")


def placements(engine: ContiguousEngine) -> list[tuple[int, int, int]]:
    """``(request, first cell, cells)`` of every reservation in order."""
    log = engine.event_log()
    assert log is not None
    taken = log.rows["kind"] == ev.ALLOCATED
    ends = np.cumsum(np.where(np.isin(log.rows["kind"], (ev.ALLOCATED, ev.FREED_BACK)), log.rows["arg"], 0))
    rows = [(int(x["req"]), int(e), int(x["arg"])) for x, e in zip(log.rows[taken], ends[taken].tolist(), strict=True)]
    return [(req, int(log.blocks[end - n]) - 1, n) for req, end, n in rows]


def same(case: Case) -> None:
    engine, reference = engine_of(case), Reference(case.workload, case.settings, case.step_time)
    assert run_checked(engine) == DONE
    reference.run()
    got = engine.state.reqs
    for r in reference.requests:
        mine = got[r.index]
        assert STATUS[mine.status] == r.state, f"request {r.index}"
        assert int(mine.preempted) == r.preempted
        times = [np.nan if t is None else t for t in (r.scheduled, r.first_token, r.finish)]
        np.testing.assert_allclose([mine.scheduled, mine.first_token, mine.finish], times, rtol=1e-12)
    assert engine.generated().tolist() == [r.generated for r in reference.requests]
    assert placements(engine) == reference.places
    assert (int(engine.counters.tokens), int(engine.counters.padding)) == (reference.tokens, reference.padding)
    assert int(engine.counters.host_used) == reference.host == 0
    assert int(engine.counters.free) == case.settings.num_gpu_blocks - 1
    gaps, counts = inter_token_gaps(engine.turns, engine.gaps)
    if reference.timed:
        written_out = np.sort(np.repeat(gaps[counts > 0], counts[counts > 0]))
        theirs = np.sort(np.concatenate([np.zeros(0), *(np.diff(r.times) for r in reference.requests)]))
        np.testing.assert_allclose(written_out, theirs, atol=1e-12)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.randoms(use_true_random=False))
def test_random_cases(r: Random) -> None:
    same(draw_case(r))


@pytest.mark.parametrize("seed", range(40))
def test_fixed_seeds(seed: int) -> None:
    same(draw_case(Random(seed), most_requests=30))


@pytest.mark.parametrize("seed", range(8))
def test_one_call_slices_and_no_log_end_alike(seed: int) -> None:
    case = draw_case(Random(100 + seed))
    whole, silent, sliced = engine_of(case), engine_of(case, log=False), engine_of(case)
    assert whole.advance() == silent.advance() == DONE
    for until in np.arange(0.0, 200.0, 0.37):
        sliced.advance(float(until))
    assert sliced.advance() == DONE
    for other in (silent, sliced):
        for name in ("scheduled", "first_token", "finish", "status", "preempted"):
            np.testing.assert_array_equal(whole.state.reqs[name], other.state.reqs[name])
        assert np.array_equal(whole.steps["duration"], other.steps["duration"])
    log, again = whole.event_log(), sliced.event_log()
    assert log is not None
    assert again is not None
    assert np.array_equal(log.events, again.events)
    assert silent.event_log() is None
