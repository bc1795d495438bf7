"""Why two runs differ, on traffic made so that the cause is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from simkv.comparison import Comparison, choices, compare
from simkv.comparison import causes as why
from simkv.comparison.causes import Causes, found, totals
from simkv.comparison.explain import Explanation
from simkv.workload.generators import generate
from simkv.workload.workload import Workload
from tests.comparison.hand import compared, request, shared, traffic


def told(comparison: Comparison) -> Explanation:
    (only,) = comparison.explanations
    a, b = (s.run for s in comparison.sides)
    signed = sum(s.tokens if s.side == 0 else -s.tokens for s in only.shifts)
    assert signed == int(found(b).sum() - found(a).sum())  # the causes add up to the difference
    return only


def by_cause(e: Explanation) -> dict[tuple[int, str], int]:
    return {(s.side, s.cause): s.tokens for s in e.shifts}


def test_the_same_settings_are_no_difference() -> None:
    e = told(compared(traffic([request("a", 20), request("b", [shared(8)], 3, 1)]), "default", "block_size=4"))
    assert e.sentence.startswith("No difference: A and B make the same decisions in all")
    assert e.parting is None
    assert e.shifts == ()
    assert (e.queue_s, e.prefill_s) == (0.0, 0.0)


def test_the_same_decisions_at_other_times() -> None:
    """One request alone: a faster GPU changes only how long it takes."""
    w = generate("open_ended", requests=1, seed=3)
    e = told(compared(w, "num_gpu_blocks=1000", "gpu=H200-SXM-141GB"))
    assert "make the same decisions in all" in e.sentence
    assert "only the time differs" in e.sentence
    assert e.parting is None


def test_block_edge() -> None:
    """30 shared tokens: 28 of them in whole blocks of 4, 24 in whole blocks of 8."""
    w = traffic([request("first", [shared(30), {"seed": 7, "n": 10}]), request("again", [shared(30), {"seed": 8, "n": 10}], 1, 1)])
    e = told(compared(w, "default", "block_size=8"))
    assert by_cause(e) == {(1, why.EDGE): 4}
    assert "4 tokens behind B's last whole block of 8 tokens" in e.sentence
    assert e.parting is not None
    assert e.parting.request == 1
    assert "again finds 28 of 40 tokens in A, 24 in B, because B hits only whole blocks of 8 tokens" in e.parting.sentence


def test_evicted() -> None:
    """9 usable blocks are too few for "first" and "filler"; 99 are enough."""
    w = traffic([request("first", [shared(25)]), request("filler", 20, 1, 1), request("again", [shared(25)], 1, 2.5)], max_model_len=36)
    e = told(compared(w, "default", "num_gpu_blocks=10"))
    assert by_cause(e) == {(1, why.EVICTED): 8}
    assert "8 tokens that B had evicted before they came back; B's pool holds 36 tokens, A's 396" in e.sentence
    assert e.parting is not None
    assert "again finds 24 of 25 tokens in A, 16 in B, because B had evicted 1.50 s before what first had left" in e.parting.sentence
    assert "to make room for filler" in e.parting.sentence
    (only,) = e.largest
    assert (only.request, only.prompt_tokens, only.cached) == ("again", 25, (24, 16))
    assert only.why == "B had evicted 1.50 s before what first had left to make room for filler"
    assert re.search(r"B finds only \d+\.\d % of prompt tokens cached, A \d+\.\d %", e.sentence)


def test_the_other_way_round_is_the_others_gain() -> None:
    w = traffic([request("first", [shared(25)]), request("filler", 20, 1, 1), request("again", [shared(25)], 1, 2.5)], max_model_len=36)
    e = told(compared(w, "num_gpu_blocks=10", "num_gpu_blocks=100"))
    assert by_cause(e) == {(0, why.EVICTED): 8}
    assert "8 tokens that A had evicted" in e.sentence
    assert re.search(r"B finds \d+\.\d % of prompt tokens cached, A \d+\.\d % \(\d+\.\d points more, 8 tokens\)", e.sentence)


def test_what_came_from_the_host_is_told_apart() -> None:
    """The tail that 9 usable blocks do not keep lies in host memory in B and comes back from there."""
    w = traffic([request("first", [shared(25)]), request("filler", 20, 1, 1), request("again", [shared(25)], 1, 2.5)], max_model_len=36)
    comparison = compared(w, "num_gpu_blocks=10", "kv_offload_num_chunks=64")
    e = told(comparison)
    rows = {row.metric.key: row.values for row in comparison.rows}
    assert rows["host_tokens"] == (None, 8)
    assert rows["host_hit_rate"] == (None, pytest.approx(8 / (25 + 20 + 9)))
    assert rows["hit_rate"] == (16 / 70, 16 / 70)
    assert "From host memory B loads 8 tokens." in e.sentence


def test_no_prefix_cache() -> None:
    w = traffic([request("first", [shared(25)]), request("again", [shared(25)], 1, 1)])
    e = told(compared(w, "default", "enable_prefix_caching=false"))
    assert by_cause(e) == {(1, why.CACHING_OFF): 24}
    assert "24 tokens that B computes again because it has no prefix cache" in e.sentence
    assert e.parting is not None
    assert "because B has no prefix cache" in e.parting.sentence


def test_seats() -> None:
    """With one seat "second" waits until "first" has been answered."""
    w = traffic([request("first", 25, 3), request("second", 25, 3)])
    e = told(compared(w, "max_num_seqs=1", "max_num_seqs=2"))
    assert e.parting is not None
    assert e.parting.sentence.endswith("B admits second, A does not: its one seat is taken.")
    assert e.queue_s == pytest.approx(-0.015)
    assert "on average requests wait 15 ms less for admission (A's one seat is taken)" in e.sentence


def test_the_bringer_comes_later() -> None:
    """By priority "urgent" overtakes "bringer", whose content it would have found by order of arrival."""
    requests = [
        request("long", 40, 20, priority=0),
        request("bringer", [shared(25)], 1, 0.01, priority=9),
        request("urgent", [shared(25)], 1, 0.02, priority=1),
    ]
    w = traffic(requests, max_num_seqs=1, max_num_batched_tokens=64)
    e = told(compared(w, "default", "policy=priority"))
    assert (1, why.LATER) in by_cause(e)
    assert "24 tokens that B did not have yet, because it admits the requests that bring them later" in e.sentence
    assert e.parting is not None
    assert e.parting.sentence.endswith("A admits bringer, B urgent.")
    assert "not for the same requests" in e.sentence


def test_cleared() -> None:
    """The reset at 0.1 s takes effect in A, where nothing runs any more, and is refused in B, whose one seat is taken."""
    requests = [request("first", [shared(25)], 6), request("other", 25, 6), request("again", [shared(25)], 1, 2)]
    w = traffic(requests, [{"at": 0.1, "op": "reset_prefix_cache"}])
    e = told(compared(w, "default", "max_num_seqs=1"))
    assert by_cause(e) == {(0, why.CLEARED): 24}
    assert "24 tokens that A had cleared" in e.sentence


def test_preempted() -> None:
    """Two requests grow to 12 blocks each: 15 usable blocks throw one back, 40 do not."""
    w = traffic([request("a", 20, 28), request("b", 20, 28)], max_model_len=48, num_gpu_blocks=41)
    comparison = compared(w, "default", "num_gpu_blocks=16")
    e = told(comparison)
    assert comparison.sides[1].run.counters["preemptions"] > 0
    assert "Requests are preempted 1 time in B, 0 times in A" in e.sentence
    assert e.parting is not None
    assert "B preempts b because no block is free, A does not" in e.parting.sentence


def test_a_request_that_never_got_in() -> None:
    w = traffic([request("first", [shared(25)]), request("again", [shared(40)], 1, 1)])
    e = told(compared(w, "default", "max_model_len=30"))
    assert by_cause(e) == {(1, why.NEVER): 24}
    assert "24 tokens of requests that B never admitted" in e.sentence


def test_waiting_is_told_with_its_reason() -> None:
    requests = [request(f"r{i}", 16, 20, i * 0.01) for i in range(12)]
    e = told(compared(traffic(requests), "default", "max_num_seqs=1"))
    assert e.queue_s is not None
    assert e.queue_s > 0
    assert "TTFT p95 rises from" in e.sentence
    assert "longer for admission (B's one seat is taken)" in e.sentence


def test_without_seconds_there_is_no_latency() -> None:
    w = traffic([request("first", [shared(25)]), request("again", [shared(25)], 1, 5)], time={"mode": "step"})
    e = told(compared(w, "default", "enable_prefix_caching=false"))
    assert (e.queue_s, e.prefill_s) == (None, None)
    assert "TTFT" not in e.sentence
    assert "They part at step" in (e.parting.sentence if e.parting else "")


def test_without_event_logs_the_cause_is_not_known() -> None:
    w = traffic([request("first", [shared(25)]), request("filler", 20, 1, 1), request("again", [shared(25)], 1, 2.5)], max_model_len=36)
    comparison = compare(w, choices(["default", "num_gpu_blocks=10"], w), events=False)
    e = told(comparison)
    assert by_cause(e) == {(1, why.UNKNOWN): 8}
    assert "for reasons the logs do not tell" in e.sentence


def test_without_content_there_are_no_hits_to_compare() -> None:
    from simkv.workload.bundled import bundled
    from simkv.workload.registry import read_workload

    w = read_workload(bundled()["azure_conv_2023"], limit=50)
    comparison = compared(w, "num_gpu_blocks=3000", "max_num_seqs=2")
    e = told(comparison)
    assert "says nothing about content" in e.sentence
    assert e.shifts == ()
    assert any("no hit rate" in note for note in comparison.notes)


PAIRS = [
    ("tokens=4160,max_num_seqs=8", "block_size=64"),
    ("tokens=8000,max_num_seqs=8", "tokens=4160"),
    ("tokens=4160,max_num_seqs=8", "max_num_seqs=3"),
]


def tenants(seed: int) -> Workload:
    """Twelve tenants' contexts of 600 tokens, which 4,160 tokens do not hold together and 8,000 do."""
    sizes = {"requests": 120, "tenants": 12, "context_tokens": 600, "question_tokens": 50, "output_tokens": 30}
    return generate("growing_tenants", seed=seed, **sizes)


@pytest.mark.parametrize("pair", PAIRS)
def test_causes_add_up_on_drawn_traffic(pair: tuple[str, str]) -> None:
    """Whatever differs, the causes' tokens add up to the difference of the hits, request by request."""
    examined = 0
    for seed in range(4):
        comparison = compared(tenants(seed), *pair)
        told(comparison)
        a, b = (s.run for s in comparison.sides)
        causes = Causes(a, b)
        for i in causes.differing().tolist():
            parts = causes.of(i)
            assert sum(p.tokens for p in parts) == abs(int(found(a)[i] - found(b)[i]))
            assert all(p.cause != why.UNKNOWN for p in parts)
            examined += 1
        assert sum(s.requests for s in totals(causes.lost())) >= len(causes.differing())
    assert examined


def test_before_the_parting_everything_is_the_same() -> None:
    for seed in range(4):
        comparison = compared(tenants(seed), "tokens=8000,max_num_seqs=8", "tokens=4160")
        e = told(comparison)
        assert e.parting is not None
        assert "had evicted" in e.parting.sentence
        a, b = (s.run for s in comparison.sides)
        before = a.requests["first_token"] < e.parting.at
        assert before.any()
        for name in ("scheduled", "hit", "first_token"):
            assert np.array_equal(a.requests[name][before], b.requests[name][before])
