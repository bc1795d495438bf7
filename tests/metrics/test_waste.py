"""What the KV memory of a run holds: the parts, their sum, and the same figures from lengths alone."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.engine.step_time import linear, step_index
from simkv.events import layout as ev
from simkv.events.folds.waste import uses
from simkv.events.layout import EVENT, STEP
from simkv.events.log import EventLog
from simkv.metrics.waste import PARTS, Waste, waste, waste_over_time, waste_series
from simkv.planning.kv_waste import contiguous, paged
from simkv.replay import Run, replay
from simkv.settings import ContiguousSettings, EngineSettings, KVGroup, SglangSettings, V0Settings
from simkv.workload.generators import generate
from tests.engine.contiguous.cases import requests

R = Random(7)
PROMPTS, OUTPUTS = [R.randint(1, 90) for _ in range(40)], [R.randint(1, 60) for _ in range(40)]


def of(run: Run) -> Waste:
    found = waste(run)
    assert found is not None
    return found


def contiguous_run(reservation: str, allocator: str = "buddy", **more: Any) -> Run:
    s = ContiguousSettings(
        reservation=reservation, allocator=allocator, **{"block_size": 1, "num_gpu_blocks": 1 + (1 << 14), "max_model_len": 256, **more}
    )
    return replay(requests(PROMPTS, OUTPUTS), s, step_index())


@pytest.mark.parametrize("allocator", ["buddy", "first_fit"])
@pytest.mark.parametrize("reservation", ["max", "pow2", "oracle"])
def test_a_run_with_room_for_all_agrees_with_the_lengths(reservation: str, allocator: str) -> None:
    """The replay's figures, step by step, are those of the formula over lengths, to the last digit."""
    expected = contiguous(np.array(PROMPTS), np.array(OUTPUTS), reservation, buddy=allocator == "buddy", max_model_len=256)
    shares = of(contiguous_run(reservation, allocator)).shares_of_held()
    assert shares is not None
    for name, share in shares.items():
        assert share == pytest.approx(getattr(expected, name), abs=1e-12), name


@pytest.mark.parametrize("block_size", [1, 4, 16, 64])
def test_paged_runs_agree_with_the_lengths(block_size: int) -> None:
    settings = EngineSettings(
        block_size=block_size,
        num_gpu_blocks=20_000 // block_size,
        max_num_batched_tokens=1 << 14,
        max_num_seqs=64,
        max_model_len=256,
        async_scheduling=False,
        enable_prefix_caching=False,
    )
    run = replay(requests(PROMPTS, OUTPUTS), settings, step_index())
    expected, got = paged(np.array(PROMPTS), np.array(OUTPUTS), block_size), of(run).shares_of_held()
    assert got is not None
    for name, share in got.items():
        assert share == pytest.approx(getattr(expected, name), abs=1e-12), name
    assert got["rounding"] == 0


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_held_blocks_are_those_the_engine_counts(async_scheduling: bool) -> None:
    """With shared prefixes, preemptions and real times; the parts always make up the pool."""
    workload = generate("multi_turn_chat", requests=60, seed=3)
    settings = EngineSettings(num_gpu_blocks=700, max_num_seqs=16, async_scheduling=async_scheduling)
    run = replay(workload, settings)
    parts = waste_over_time(run)
    assert parts is not None
    held = sum(parts[name] for name in PARTS[:4])
    scheduled = run.steps["schedule"] >= 0
    np.testing.assert_array_equal(held[scheduled], (699.0 - run.steps["free"][scheduled]) * 16)
    np.testing.assert_allclose(sum(parts.values()), 699 * 16)
    assert all((values >= 0).all() for values in parts.values())
    assert (parts["external"] == 0).all(), "any free block serves"
    shares = of(run).shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["states"] > 0.01


@pytest.mark.parametrize("page_size", [1, 16])
def test_pages_of_a_radix_tree_are_held_while_a_live_request_reads_them(page_size: int) -> None:
    """On a pool small enough for evictions; with pages of one token nothing that is held is empty."""
    workload = generate("multi_turn_chat", requests=150, seed=3, rate=30.0)
    run = replay(workload, SglangSettings(page_size=page_size, max_total_tokens=4800, max_running_requests=16))
    assert run.counters["removed"] > 0
    parts = waste_over_time(run)
    assert parts is not None
    held = sum(parts[name] for name in PARTS[:4])
    np.testing.assert_array_equal(held, 4800.0 - run.steps["free"] * page_size)
    assert all((values >= 0).all() for values in parts.values())
    shares = of(run).shares_of_held()
    assert shares is not None
    assert shares["states"] == 1 if page_size == 1 else 0.9 < shares["states"] < 1


def test_v0_with_one_sequence_a_request_wastes_what_its_blocks_do() -> None:
    """The memory is large, so nothing depends on the scheduler: V0 and V1 hold the same blocks, step for step."""
    run = replay(requests(PROMPTS, OUTPUTS), V0Settings(num_gpu_blocks=1500, max_num_seqs=64, max_model_len=256), step_index())
    expected, got = paged(np.array(PROMPTS), np.array(OUTPUTS), 16), of(run).shares_of_held()
    assert got is not None
    assert got["states"] == pytest.approx(expected.states, abs=0.01), "V0 takes a block for the next token before it is there"
    assert got["rounding"] == 0


def test_blocks_loaded_from_the_host_hold_tokens_when_they_are_there() -> None:
    """Four blocks of 16: one hit, two loaded, the last with 10 of its tokens computed."""
    header = {"num_blocks": 9, "groups": [{"type": "full", "block_size": 16}], "requests": 1}
    rows = [(0, 1, ev.HIT), (0, 2, ev.ALLOCATED), (0, 3, ev.ALLOCATED), (0, 2, ev.LOAD_STARTED), (0, 2, ev.LOADED)]
    rows += [(0, 4, ev.ALLOCATED), (0, 16, ev.ADMITTED), (0, 10, ev.SCHEDULED), (0, 0, ev.FINISHED)]
    steps = np.zeros(3, STEP)
    steps["first_event"] = [0, 4, 5]
    log = EventLog.of_events(np.array([(r, a, k) for r, a, k in rows], EVENT), np.zeros(0, np.uint64), steps, header)
    busy, after = uses(log, np.array([62]), None)
    assert after["held"][:2].tolist() == [3, 3]
    assert after["reserved"].tolist() == [32, 0, 0], "the hit is full, then the loaded blocks are, then the request is over"
    assert (int(busy["reserved"][2]), int(busy["internal"][2])) == (62 - 58, 2)


def test_shared_blocks_count_once() -> None:
    """Two requests with one prompt of four blocks: together five blocks, not eight."""
    workload = generate("shared_system_prompt", requests=2, seed=0)
    run = replay(workload, EngineSettings(num_gpu_blocks=2000, max_num_seqs=4), step_index())
    parts = waste_over_time(run)
    assert parts is not None
    both = run.steps["running"] == 2
    assert both.any()
    lengths = int((workload.num_prompt + workload.num_output).sum())
    assert parts["states"][both].max() < lengths


def test_free_memory_is_external_only_when_somebody_needs_it() -> None:
    """Pool of 24 cells, pieces of 16: 8 are free; they are idle while nobody waits, and of no use to the one that does."""
    one = replay(requests([4], [4]), ContiguousSettings(block_size=1, num_gpu_blocks=25, max_model_len=16), step_index())
    two = replay(requests([4, 4], [4, 4]), ContiguousSettings(block_size=1, num_gpu_blocks=25, max_model_len=16), step_index())
    assert of(one).to_mapping() == {"pool": 24, "states": 5.5, "reserved": 2.5, "internal": 8, "rounding": 0, "external": 0, "idle": 8}
    assert of(two).to_mapping() == {"pool": 24, "states": 5.5, "reserved": 2.5, "internal": 8, "rounding": 0, "external": 4, "idle": 4}


def test_a_full_house_or_a_static_batch_makes_nobody_wait_for_memory() -> None:
    for more in ({"max_num_seqs": 1}, {"batching": "static", "max_num_seqs": 1}):
        s = ContiguousSettings(block_size=1, num_gpu_blocks=25, max_model_len=16, **more)
        assert of(replay(requests([4, 4], [4, 4]), s, step_index())).external == 0


def test_time_counts_not_steps() -> None:
    """A prefill step of 9 s holds 4 tokens, the three steps of 1 s after it 5, 6 and 7; then a second of nothing, and all again."""
    s = ContiguousSettings(block_size=1, num_gpu_blocks=9, max_model_len=8, reservation="oracle")
    run = replay(requests([4, 4], [4, 4], [0.0, 13.0]), s, linear(1.0, 2.0, 0.0))
    assert run.end_time_s == 25
    assert of(run).states == pytest.approx(2 * (9 * 4 + 5 + 6 + 7) / 25)
    assert of(run).idle == pytest.approx(8 * 1 / 25)


@pytest.mark.parametrize("points", [1, 7, 300])
def test_the_series_adds_up_to_the_means(points: int) -> None:
    run = replay(generate("multi_turn_chat", requests=40, seed=1), ContiguousSettings(num_gpu_blocks=800, max_num_seqs=8))
    found = waste_series(run, points)
    assert found is not None
    assert found["time"].shape == (points,)
    for name, share in of(run).shares().items():
        assert found[name].mean() == pytest.approx(share, abs=1e-12)
    np.testing.assert_allclose(sum(found[name] for name in PARTS), 1.0)


def test_no_data_is_none() -> None:
    s = ContiguousSettings(block_size=1, num_gpu_blocks=25, max_model_len=16)
    assert waste(replay(requests([4], [4]), s, step_index(), events=False)) is None
    two = EngineSettings(num_gpu_blocks=100, hybrid=(KVGroup(), KVGroup("sliding", 32)), max_num_seqs=4)
    assert waste(replay(requests([40], [4]), two, step_index())) is None
    assert waste_over_time(replay(requests([40], [4]), two, step_index())) is None
    nothing = replay(requests([200], [4]), EngineSettings(num_gpu_blocks=50, max_model_len=100, max_num_seqs=4), step_index())
    assert waste_series(replay(requests([40], [4]), two, step_index())) is None
    assert waste(nothing) is None or of(nothing).shares_of_held() is None
