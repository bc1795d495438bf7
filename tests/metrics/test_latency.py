"""Percentiles without one number per token are those of the written-out list."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.events.layout import GAP, STEP, TICK
from simkv.events.turns import Turns
from simkv.latency import PERCENTILES, inter_token_gaps, percentiles, percentiles_of_gaps, percentiles_of_parts
from simkv.replay import Run
from tests.engine.cases import draw_case, replayed
from tests.engine.hand import VIRTUAL, request, run, shared
from tests.engine.reference import Reference

QUIET = settings(derandomize=True, database=None, deadline=None, max_examples=300)
values = st.floats(0, 1e4, allow_nan=False) | st.sampled_from([0.0, 0.01, 0.01, 0.25])


@QUIET
@given(st.lists(st.tuples(values, st.integers(0, 40)), max_size=30))
def test_weighted_percentiles_are_numpy_s(pairs: list[tuple[float, int]]) -> None:
    numbers, counts = np.array([v for v, _ in pairs]), np.array([n for _, n in pairs], np.int64)
    written_out = np.repeat(numbers, counts)
    got = percentiles_of_parts([(numbers, counts)])
    if not len(written_out):
        assert got == {"p50": None, "p95": None, "p99": None}
        return
    assert got == {f"p{p}": float(np.percentile(written_out, p)) for p in PERCENTILES}


@pytest.mark.parametrize("draw", ["near each other", "far apart", "many equal", "with negative ones"])
def test_many_values_are_not_sorted_and_yet_numpy_s(draw: str) -> None:
    r = np.random.default_rng(5)
    n = 20_000
    values = {
        "near each other": 0.007 + r.exponential(2e-4, n),
        "far apart": np.exp(r.normal(-5, 8, n)) * r.integers(0, 2, n),
        "many equal": r.integers(0, 5, n) / 7,
        "with negative ones": r.normal(0, 1, n),
    }[draw]
    counts = r.integers(0, 4, n)
    written_out = np.repeat(values, counts)
    expected = {f"p{p}": float(v) for p, v in zip(PERCENTILES, np.percentile(written_out, PERCENTILES), strict=True)}
    assert percentiles_of_parts([(values, counts)]) == expected
    cuts = [0, 10, 10, 7000, n]
    assert percentiles_of_parts([(values[a:b], counts[a:b]) for a, b in pairwise(cuts)]) == expected


@QUIET
@given(st.lists(values | st.just(np.nan), max_size=60))
def test_percentiles_leave_out_what_is_not_there(numbers: list[float]) -> None:
    known = [v for v in numbers if np.isfinite(v)]
    got = percentiles(np.array(numbers, float))
    assert got == ({f"p{p}": float(np.percentile(known, p)) for p in PERCENTILES} if known else dict.fromkeys(("p50", "p95", "p99")))


def written_out(result: Run) -> list[float]:
    gaps, counts = inter_token_gaps(result.turns, result.gaps)
    assert np.isfinite(gaps[counts > 0]).all()
    return sorted(np.repeat(gaps[counts > 0], counts[counts > 0]).tolist())


def drawn_turns(seed: int, rows: int, noise: float) -> tuple[Turns, np.ndarray]:
    """A table of turns and gaps such as an engine writes; with enough noise some gaps are negative."""
    r = np.random.default_rng(seed)
    steps = np.zeros(rows, STEP)
    steps["schedule"], steps["turns"] = r.integers(-1, 3, rows), r.integers(1, 9, rows)
    steps["turns"][steps["schedule"] < 0] = 1
    steps["decode"], steps["cadence"] = r.integers(0, 40, rows), r.integers(0, 40, rows)
    ends = np.cumsum(r.choice([0.0, 0.013, 0.02], int(steps["turns"].sum()))) + r.normal(0, noise, int(steps["turns"].sum()))
    last = np.cumsum(steps["turns"]) - 1
    inside = np.ones(len(ends), bool)
    inside[last] = False
    ticks = np.zeros(int(inside.sum()), TICK)
    steps["end"], ticks["end"] = ends[last], ends[inside]
    gaps = np.zeros(rows // 3, GAP)
    gaps["gap"] = r.exponential(0.1, len(gaps))
    gaps["gap"][::7] = np.nan
    return Turns(steps, ticks), gaps


@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("sizes", [(0,), (1,), (2, 0), (400, 900), (0, 3000, 1)])
def test_gaps_are_counted_where_they_lie(sizes: tuple[int, ...], noise: float) -> None:
    runs = [drawn_turns(k, rows, noise if k else 0.0) for k, rows in enumerate(sizes)]
    assert percentiles_of_gaps(runs) == percentiles_of_parts([inter_token_gaps(*run) for run in runs])
    assert percentiles_of_gaps(runs[:1]) == percentiles_of_parts([inter_token_gaps(*runs[0])])


@pytest.mark.parametrize("seed", range(40))
def test_gaps_between_tokens(seed: int) -> None:
    """Also with preemption, output under way, resets and aborts: the gaps of the tokens that came, no more."""
    case = draw_case(Random(2000 + seed))
    reference = Reference(case.workload, case.settings, case.step_time)
    for _ in range(3000):
        outcome = reference.half_turn()
        if outcome in ("done", "stalled"):
            break
    if outcome != "done":
        return
    result = replayed(case)
    gaps = [np.diff(x.token_times) for x in reference.requests]
    assert written_out(result) == sorted(np.concatenate([np.zeros(0), *gaps]).tolist())
    summary = result.summary()["itl_s"]
    if result.workload.time_unit == "seconds" and len(np.concatenate(gaps)):
        assert summary == {f"p{p}": float(np.percentile(np.concatenate(gaps), p)) for p in PERCENTILES}


def test_latencies_of_a_run_one_can_count() -> None:
    """Steps of 10 ms. Prompt of 40 in three chunks; the second request waits for the first."""
    result = run([request("a", [shared(40)], 3), request("b", 8, 2, 0.005)], time=VIRTUAL, max_num_batched_tokens=16, max_num_seqs=1)
    a, b = result.requests
    assert [a["scheduled"], a["first_token"], a["finish"]] == pytest.approx([0, 0.03, 0.05])
    assert [b["scheduled"], b["first_token"], b["finish"]] == pytest.approx([0.05, 0.06, 0.07])
    summary = result.summary()
    assert summary["ttft_s"]["p50"] == pytest.approx((0.03 + 0.055) / 2)
    assert summary["queue_s"]["p99"] == pytest.approx(0.99 * 0.045)
    assert summary["e2e_s"]["p50"] == pytest.approx((0.05 + 0.065) / 2)
    assert summary["itl_s"] == pytest.approx({"p50": 0.01, "p95": 0.01, "p99": 0.01})


def test_a_preempted_request_keeps_its_tokens_waiting() -> None:
    result = run([request("a", 12, 20), request("b", 12, 20)], time=VIRTUAL, num_gpu_blocks=12)
    preempted = int(result.requests["preempted"].sum())
    assert preempted >= 1
    assert len(result.gaps) >= preempted
    assert result.gaps["gap"].max() > 0.02
    assert len(written_out(result)) == 2 * 19


def test_no_latency_where_time_is_steps() -> None:
    summary = run([request("a", 12, 20)]).summary()
    for name in ("ttft_s", "itl_s", "e2e_s", "queue_s"):
        assert summary[name] == {"p50": None, "p95": None, "p99": None}
