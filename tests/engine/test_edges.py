"""The corners: what never fits, what is refused, what arrives together, what has nothing to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from simkv.engine.step_time import step_index
from simkv.errors import SettingsError
from simkv.replay import STATUS, Run, replay
from simkv.settings import EngineSettings, KVGroup
from tests.engine.compare import Side
from tests.engine.hand import VIRTUAL, case, nothing, request, run, shared, workload


def status(result: Run) -> list[str]:
    return [STATUS[s] for s in result.requests["status"]]


def test_an_empty_workload() -> None:
    result = replay(nothing(), EngineSettings(num_gpu_blocks=10))
    assert result.status == "complete"
    summary = result.summary()
    assert summary["requests"] == summary["steps"] == summary["queries"] == 0
    assert summary["hit_rate"] is None
    assert summary["ttft_s"] == {"p50": None, "p95": None, "p99": None}
    assert result.log is not None
    assert len(result.log.events) == 0


# What cannot go on


def test_a_request_that_never_fits() -> None:
    """The gate refuses the second prompt for ever; the engine would wait, a replay says so."""
    made = ([request("fits", 8, 3), request("never", 60, 1, 1), request("behind", 4, 1, 2)],)
    result = run(*made, num_gpu_blocks=10)
    assert result.status == "stalled"
    assert status(result) == ["finished", "waiting", "waiting"]
    assert "Nothing can be scheduled any more: 2 requests wait" in result.notes[-1]
    assert result.summary()["finished"] == 1
    assert np.isnan(result.requests["scheduled"][1])
    side = Side(case(*made, num_gpu_blocks=10))
    assert side.run() == "stalled"
    assert side.engine.advance() == side.engine.advance(pause=True), "it stays stalled"
    turns = len(side.engine.steps)
    side.engine.advance()
    assert len(side.engine.steps) == turns


def test_preempting_itself_for_ever() -> None:
    """Three sliding groups without the gate: each chunk needs more than the window gives back. vLLM would not stop."""
    groups = [{"type": "sliding", "window": 6}] * 3
    requests = [request("thrashes", 60, 3), request("waits", 4, 1, 5)]
    config: dict[str, Any] = {"hybrid": groups, "num_gpu_blocks": 16, "scheduler_reserve_full_isl": False, "max_num_batched_tokens": 16}
    result = run(requests, async_scheduling=True, max_model_len=64, **config)
    assert result.status == "stalled"
    assert result.counters["preemptions"] > 1_000
    assert result.counters["finished"] == 0
    assert any("preempts and recomputes without end" in note for note in result.notes)
    assert Side(case(requests, async_scheduling=True, max_model_len=64, **config)).run(150) == "cut"


# What is refused


def test_prompts_that_leave_no_room() -> None:
    """A prompt needs room for one token behind it; its successors arrive when it is refused."""
    requests = [
        request("fits", 255, 9),
        request("full", 256, 1),
        request("longer", 300, 1, 2),
        request("next", 8, 2, 3, after="longer"),
        request("last", 8, 2, 0, after="next"),
    ]
    side = Side(case(requests))
    assert side.run() == "done"
    result = run(requests)
    assert status(result) == ["finished", "rejected", "rejected", "finished", "finished"]
    assert result.requests["generated"].tolist() == [1, 0, 0, 2, 2]
    assert result.requests["arrive"].tolist() == [0, 0, 2, 5, 7]
    assert np.isnan(result.requests["finish"][1:3]).all()
    assert result.summary()["rejected"] == 2


def test_nothing_to_generate_and_nothing_to_read() -> None:
    """vLLM wants a prompt and max_tokens of at least 1; the server's answer is an error, the others go on."""
    w = workload([request("a", 8, 1), request("b", 8, 1), request("c", 8, 1, 4)])
    odd: list[dict[str, Any]] = [{"num_output": np.array([0, 1, 1], np.int32)}, {"num_prompt": np.array([0, 8, 8], np.int32)}]
    for change in odd:
        result = replay(dataclasses.replace(w, **change))
        assert status(result) == ["rejected", "finished", "finished"]
        assert result.counters["tokens"] == 16


def test_too_many_groups() -> None:
    with pytest.raises(SettingsError, match="at most 8 groups"):
        EngineSettings(hybrid=tuple(KVGroup() for _ in range(9)))
    groups = [{"type": "sliding", "window": 5 + i} if i % 2 else {"type": "full"} for i in range(8)]
    assert Side(case([request("a", [shared(30)], 9), request("b", [shared(25)], 9, 3)], hybrid=groups, num_gpu_blocks=150)).run() == "done"


def test_a_column_of_adapters_without_any() -> None:
    result = run([request("a", 8, lora=None), request("b", 8)])
    assert status(result) == ["finished", "finished"]


# Order


def test_ties_in_arrival_keep_the_order_of_the_file() -> None:
    requests = [request(name, 8, 2, 1) for name in "dbca"]
    side = Side(case(requests, max_num_seqs=1))
    assert side.run() == "done"
    finish = run(requests, max_num_seqs=1).requests["finish"]
    assert finish.tolist() == sorted(finish)


def test_equal_priorities_go_by_arrival_then_by_name() -> None:
    """Within a priority the earlier request; at the same moment the smaller id as text ("r10" before "r9")."""
    arrivals = {"r9": 0.5, "r10": 0.5, "a": 0.7, "z": 0.3}
    requests = [request("first", 8, 30, 0.0), *(request(n, 8, 2, t, priority=1) for n, t in sorted(arrivals.items(), key=lambda x: x[1]))]
    w = workload(requests, time=VIRTUAL, policy="priority", max_num_seqs=1)
    same_moment = dataclasses.replace(w, tie=np.array(w.arrive))
    finish = replay(same_moment).requests["finish"]
    order = [w.id(i) for i in np.argsort(finish)]
    assert order == ["first", "z", "r10", "r9", "a"]


def test_a_late_request_does_not_jump_the_queue_by_being_chained() -> None:
    """What counts is when it really arrived, not the pause behind its predecessor."""
    requests = [
        request("first", 8, 5),
        request("open", 8, 5, 0.005, priority=1),
        request("chained", 8, 5, 0.001, priority=1, after="first"),
    ]
    made = case(requests, time=VIRTUAL, policy="priority", max_num_seqs=1)
    assert Side(made).run() == "done"
    finish = replay(made.workload).requests["finish"]
    names = [made.workload.id(i) for i in np.argsort(finish)]
    assert names == ["first", "open", "chained"]


def test_the_victim_is_the_least_important() -> None:
    requests = [request("low", 12, 30, priority=5), request("high", 12, 30, priority=1), request("mid", 12, 30, priority=3)]
    result = run(requests, num_gpu_blocks=16, policy="priority")
    preempted = {result.workload.id(i): int(n) for i, n in enumerate(result.requests["preempted"])}
    assert preempted["high"] == 0
    assert preempted["low"] >= 1
    assert preempted["low"] >= preempted["mid"]


# Actions


def test_aborts_of_everything_there_is() -> None:
    requests = [
        request("running", 40, 30),
        request("waiting", 40, 30, 1),
        request("later", 8, 2, 9),
        request("child", 8, 2, 2, after="waiting"),
        request("grandchild", 8, 2, 1, after="child"),
    ]
    actions = [
        {"at": 3, "op": "abort", "id": "later"},  # unknown to the engine yet: nothing happens
        {"at": 4, "op": "abort", "id": "waiting"},
        {"at": 5, "op": "abort", "id": "running"},
        {"at": 6, "op": "abort", "id": "running"},
        {"at": 7, "op": "abort", "id": "child"},
        {"at": 400, "op": "abort", "id": "grandchild"},
        {"at": 500, "op": "abort", "id": "nobody"},
    ]
    config: dict[str, Any] = {"max_num_seqs": 1, "max_num_batched_tokens": 16}
    for asynchronous in (False, True):
        assert Side(case(requests, actions, async_scheduling=asynchronous, **config)).run() == "done"
        result = run(requests, actions, async_scheduling=asynchronous, **config)
        ends = {result.workload.id(i): s for i, s in enumerate(status(result))}
        assert ends == {"running": "aborted", "waiting": "aborted", "child": "aborted", "grandchild": "finished", "later": "finished"}
        assert result.requests["arrive"][2] == 4 + 2
        assert result.counters["aborted"] + result.counters["finished"] == 5
        assert result.counters["free"] == 99


def test_an_action_when_all_is_over() -> None:
    result = run([request("a", [shared(17)])], [{"at": 50, "op": "reset_prefix_cache"}])
    assert result.counters["cached"] == 0
    assert result.steps["schedule"].tolist() == [0, -1]
    late = run([request("a", [shared(17)]), request("b", [shared(17)], 1, 60)], [{"at": 50, "op": "reset_prefix_cache"}])
    assert late.requests["hit"].tolist() == [0, 0]
    early = run([request("a", [shared(17)]), request("b", [shared(17)], 1, 40)], [{"at": 50, "op": "reset_prefix_cache"}])
    assert early.requests["hit"].tolist() == [0, 16]


def test_a_reset_needs_an_idle_pool() -> None:
    requests = [request("a", [shared(17)], 30), request("b", [shared(17)], 1, 10)]
    busy = run(requests, [{"at": 5, "op": "reset_prefix_cache"}])
    assert busy.requests["hit"].tolist() == [0, 16]
    preempting = run(requests, [{"at": 5, "op": "reset_prefix_cache", "reset_running_requests": True}])
    assert preempting.requests["preempted"].tolist() == [1, 0]
    assert preempting.counters["recompute_hits"] == 0


# Time


def test_half_steps_belong_to_the_next_step() -> None:
    """Step mode with arrivals between two steps, where the loop once turned without end."""
    result = run([request("a", 8, 2, 0.5), request("b", 8, 1, 7.25)], [{"at": 20.5, "op": "reset_prefix_cache"}])
    assert result.status == "complete"
    assert result.requests["scheduled"].tolist() == [1, 8]
    assert len(result.steps) < 10


def test_a_step_far_away() -> None:
    """Step numbers beyond 32 bits: the queue of batches works as before."""
    for asynchronous in (False, True):
        result = run([request("a", 8, 3), request("b", 8, 3, 3e9)], async_scheduling=asynchronous)
        assert result.requests["finish"].tolist() == [3 + asynchronous, 3e9 + 3 + asynchronous]
        assert (result.steps["schedule"] >= -1).all()
        assert result.end_time_s == 3e9 + 3 + asynchronous


def test_times_in_step_mode_are_steps() -> None:
    result = run([request("a", 40, 3, 2)], max_num_batched_tokens=16)
    assert [float(result.requests[name][0]) for name in ("arrive", "scheduled", "first_token", "finish")] == [2, 2, 5, 7]
    assert result.steps["end"].tolist() == [3, 4, 5, 6, 7]
    assert result.summary()["ttft_s"]["p50"] is None
    assert result.end_time_s == 7


def test_seconds_replayed_in_steps() -> None:
    w = workload([request(f"r{i}", 8, 3, i / 10) for i in range(9)], time={"mode": "seconds"})
    assert replay(w, step_time=step_index()).counters["finished"] == 9


# Small numbers


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (1, 9), (4, 1), (5, 4), (255, 1)])
def test_small_and_aligned(prompt: int, output: int, asynchronous: bool) -> None:
    requests = [request("a", [shared(prompt)], output), request("b", [shared(prompt)], output, 40)]
    config: dict[str, Any] = {"async_scheduling": asynchronous, "num_gpu_blocks": 140}
    assert Side(case(requests, **config)).run() == "done"
    hit = run(requests, **config).requests["hit"][1]
    assert hit == (prompt - 1) // 4 * 4


def test_one_token_at_a_time() -> None:
    requests = [request("a", [shared(9)], 3), request("b", [shared(9)], 3, 2)]
    result = run(requests, max_num_batched_tokens=1)
    assert (result.steps["prefill"] + result.steps["decode"]).max() == 1
    assert Side(case(requests, max_num_batched_tokens=1, async_scheduling=True)).run() == "done"


def test_the_last_usable_block() -> None:
    """A request may fill the pool to the last block, the null block never."""
    result = run([request("a", 30, 2)], num_gpu_blocks=9)
    assert status(result) == ["finished"]
    assert result.steps["free"].min() == 0
    assert run([request("a", 33, 2)], num_gpu_blocks=9).status == "stalled"
