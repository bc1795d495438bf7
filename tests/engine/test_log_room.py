"""The log: rows of a turn never exceed what was reserved, buffers grow without a trace, and a limit is a limit."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.engine.contract import PROCESSED, SCHEDULED
from simkv.engine.vllm import state as module
from simkv.engine.vllm.engine import DONE, VllmEngine
from simkv.replay import replay
from tests.engine.cases import Case, draw_case
from tests.engine.compare import Side
from tests.engine.hand import case, request, shared, workload


def finished(made: Case, **more: Any) -> VllmEngine:
    engine = VllmEngine(made.workload, made.settings, made.step_time.record(), **{"log": True, **more})
    engine.advance()
    return engine


def test_an_abort_makes_way_for_many_hits() -> None:
    """The running request leaves at the start of a turn in which a long prompt is found in the cache."""
    long = [shared(800)]
    requests = [request("a", long), request("b", 4, 50, 60), request("c", [*long, shared(3, 2)], 1, 61)]
    made = case(requests, [{"at": 70, "op": "abort", "id": "b"}], max_num_seqs=1, max_num_batched_tokens=16, max_model_len=900,
                num_gpu_blocks=300)  # fmt: skip
    side = Side(made)
    assert side.run() == "done"
    assert side.reference.requests[2].hit == 800


def test_a_rejected_request_lets_many_arrive() -> None:
    crowd = [request(f"c{i}", 3, after="long") for i in range(400)]
    requests = [request("first", 8), request("long", 256, after="first"), *crowd]
    assert Side(case(requests, max_num_seqs=2, max_num_batched_tokens=16)).run(20) == "cut"


def test_running_requests_reset_and_back_again() -> None:
    requests = [request(f"r{i}", [shared(200), shared(5, 3 + i)], 9) for i in range(8)]
    actions = [{"at": 30, "op": "reset_prefix_cache", "reset_running_requests": True}]
    made = case(requests, actions, max_num_batched_tokens=16, num_gpu_blocks=600)
    assert Side(made).run() == "done"


def crowd(seed: int) -> Case:
    """Long prompts in small chunks, of all priorities, in a pool for a few of them: preempted, they give back what they were given."""
    r = Random(900 + seed)
    requests = [
        request(f"r{i}", r.choice([30, 120, 200]), r.randint(1, 30), r.randrange(12), priority=r.randrange(6))
        for i in range(r.randint(6, 14))
    ]
    limits = {"max_num_batched_tokens": r.choice([32, 64]), "long_prefill_token_threshold": r.choice([0, 8, 24])}
    return case(requests, policy="priority", num_gpu_blocks=r.choice([60, 64, 70]), **limits)


@pytest.mark.parametrize("seed", range(30))
def test_preempted_requests_give_back_their_share_of_the_batch(seed: int) -> None:
    made = crowd(seed)
    assert Side(made).run() == "done"
    engine = VllmEngine(made.workload, made.settings, made.step_time.record(), log=False)
    engine.write_kv_events()
    c, before = engine.counters, 0
    while engine.advance(pause=True) in (SCHEDULED, PROCESSED):
        if c.phase == 0:
            assert c.logged_kv - before <= engine.config.kv_events
            before = int(c.logged_kv)


def test_crowds_preempt_each_other() -> None:
    assert sum(int(finished(crowd(seed)).counters.preemptions) for seed in range(30)) > 60


@pytest.mark.parametrize("seed", range(25))
def test_growing_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = draw_case(Random(300 + seed))
    ample = finished(made)
    monkeypatch.setattr(module, "_expected_log", lambda *_: (1, 1, 1))
    monkeypatch.setattr(module, "FIRST_STEPS", 1)
    tight = VllmEngine(made.workload, made.settings, made.step_time.record(), log=True)
    assert len(tight.state.steps) == 1
    tight.advance()
    a, b = ample.event_log(), tight.event_log()
    assert a is not None
    assert b is not None
    assert a.events.tobytes() == b.events.tobytes()
    assert a.keys.tobytes() == b.keys.tobytes()
    for name in a.steps.dtype.names or ():
        np.testing.assert_array_equal(a.steps[name], b.steps[name], name)
    assert ample.gaps.tobytes() == tight.gaps.tobytes()


@pytest.mark.parametrize("seed", range(25))
def test_without_a_log_the_same_happens(seed: int) -> None:
    made = draw_case(Random(600 + seed))
    logged, quiet, dropped = finished(made), finished(made, log=False), finished(made, max_events=10)
    for other in (quiet, dropped):
        assert other.event_log() is None or other is dropped
        assert logged.free_queue().tolist() == other.free_queue().tolist()
        for name in logged.counters.dtype.names or ():
            if name not in ("events", "logged_rows", "logged_blocks", "logged_keys", "need_events"):
                assert logged.counters[name] == other.counters[name], name
        for name in logged.steps.dtype.names or ():
            if name != "first_event":
                np.testing.assert_array_equal(logged.steps[name], other.steps[name])
        assert logged.state.reqs.tobytes() == other.state.reqs.tobytes()


def test_too_many_events() -> None:
    """Beyond ``max_events`` the log is given up, whatever was reserved for it; the figures stay."""
    w = workload([request(f"r{i}", 40, 20, i) for i in range(200)], max_num_seqs=8)
    whole = replay(w)
    assert whole.log is not None
    most = 2 * len(whole.log) // 3
    assert most > 3000
    run = replay(w, max_events=most)
    assert run.log is None
    assert f"{most:,} events" in run.notes[0]
    assert run.notes[1:] == whole.notes
    mine, theirs = run.summary(), whole.summary()
    for name in ("wall_s", "peak_rss_mb"):
        del mine[name], theirs[name]
    assert mine == theirs
    assert replay(w, max_events=None).log is not None
    assert replay(w, max_events=len(whole.log) * 50).log is not None


def test_events_off() -> None:
    run = replay(workload([request("r", 40)]), events=False)
    assert run.log is None
    assert not run.notes


def test_nothing_to_do() -> None:
    made = case([request("r", 4)])
    engine = VllmEngine(made.workload, made.settings, made.step_time.record(), log=True)
    assert engine.advance() == DONE
    assert engine.advance() == DONE
    assert engine.advance(-1.0) == DONE
    log = engine.event_log()
    assert log is not None
    assert len(log.steps) == 1
