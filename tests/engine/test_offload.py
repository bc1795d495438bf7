"""The host tier by rule: what the recorded runs do not show, or not by itself."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.engine.contract import CRASHED, DONE, PROCESSED, SCHEDULED, STALLED
from simkv.engine.resolve import resolve
from simkv.engine.vllm.engine import VllmEngine
from simkv.engine.vllm.integrity import check_integrity
from simkv.errors import SettingsError
from simkv.events import layout as ev
from simkv.events.folds.pool import pool_at
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from tests.engine.hand import VIRTUAL, request, shared, workload
from tests.engine.offload_cases import draw_offload_case, engine_of


def run(*args, time=None, **config) -> Run:  # type: ignore[no-untyped-def]
    """A hand-made case with the host tier's settings given as they are named."""
    host = {k: v for k, v in config.items() if k.startswith("kv_")}
    rest = {k: v for k, v in config.items() if k not in host}
    return replay(workload(*args, time=time, **rest), EngineSettings(**host))


@pytest.mark.parametrize("connector", ["native", "simple"])
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=25, deadline=None)
def test_any_run_is_sound(connector: str, seed: int) -> None:
    case = draw_offload_case(Random(seed), connector)
    engine = engine_of(case)
    why, halves = SCHEDULED, 0
    while why in (SCHEDULED, PROCESSED):
        why = engine.advance(pause=True)
        halves += 1
        if why != CRASHED:
            check_integrity(engine)
    log, c = engine.event_log(), engine.counters
    assert log is not None
    if why == DONE:
        assert int(c.finished + c.aborted + c.rejected) == len(case.workload)
    if why in (DONE, STALLED) and len(engine.steps):
        pool = pool_at(log, len(engine.steps) - 1)
        assert np.array_equal(pool.free_queue(), engine.free_queue())
        assert np.array_equal(pool.ref[1:], engine.state.blocks["ref"][1 : int(engine.config.num_blocks)])
    host = engine.host_counters
    assert host is not None
    kinds = log.events["kind"]
    assert host["stored"] == np.count_nonzero(kinds == ev.HOST_STORED)
    assert host["removed"] == np.count_nonzero(kinds == ev.HOST_REMOVED)
    assert host["hits"] + host["recompute_hits"] == host["load_blocks"] * case.settings.block_size or connector == "native"


@pytest.mark.parametrize("connector", ["native", "simple"])
def test_one_call_does_what_many_halves_do(connector: str) -> None:
    for seed in range(12):
        case = draw_offload_case(Random(seed), connector)
        whole, halves = engine_of(case), engine_of(case)
        end = whole.advance()
        while (why := halves.advance(pause=True)) in (SCHEDULED, PROCESSED):
            pass
        assert why == end
        a, b = whole.event_log(), halves.event_log()
        assert a is not None
        assert b is not None
        assert np.array_equal(a.events, b.events)
        assert whole.host_counters == halves.host_counters


def test_without_a_host_tier_nothing_differs() -> None:
    for seed in range(8):
        case = draw_offload_case(Random(seed), "native")
        plain = VllmEngine(case.workload, resolve_without(case), case.step_time.record(), log=True)
        plain.advance()
        assert plain.host_counters is None
        assert plain.host_steps is None
        assert not np.isin(plain.event_log().events["kind"], [ev.HOST_STORED, ev.LOAD_STARTED, ev.STORE_STARTED]).any()  # type: ignore[union-attr]


def resolve_without(case):  # type: ignore[no-untyped-def]
    import dataclasses

    return dataclasses.replace(case.settings, offload=None)


TWICE = [
    request("a", [shared(40)]),
    request("b", [shared(40)], arrive=20),
]


def test_what_left_the_device_comes_back_from_host_memory() -> None:
    reset = [{"at": 10, "op": "reset_prefix_cache"}]
    result = run(TWICE, reset, num_gpu_blocks=30, kv_offload_num_chunks=20)
    host = result.host
    assert host is not None
    assert (host["queries"], host["hits"]) == (80, 40)
    assert result.counters["hits"] == 0  # the device's own counters know nothing of it
    assert (host["loads"], host["load_blocks"]) == (1, 10)
    assert host["stored"] == 10


def test_a_lone_part_of_a_chunk_is_not_loaded() -> None:
    reset = [{"at": 10, "op": "reset_prefix_cache"}]
    result = run(TWICE, reset, num_gpu_blocks=30, kv_offload_num_chunks=20, kv_offload_blocks_per_chunk=4)
    assert result.host is not None
    assert result.host["hits"] == 32  # two chunks of 16 tokens


def test_copies_take_bytes_over_bandwidth_and_are_noticed_at_step_ends() -> None:
    requests = [request("a", [shared(40)], output=2), request("b", [shared(40)], arrive=5.0)]
    reset = [{"at": 4.0, "op": "reset_prefix_cache"}]
    slow = run(requests, reset, time=VIRTUAL, num_gpu_blocks=30, kv_offload_num_chunks=20, kv_offload_bandwidth=1e6)
    fast = run(requests, reset, time=VIRTUAL, num_gpu_blocks=30, kv_offload_num_chunks=20, kv_offload_bandwidth=1e9)
    block_bytes = 4 * 131_072
    for result, bandwidth in ((slow, 1e6), (fast, 1e9)):
        assert result.host is not None
        seconds = 20e-6 + 10 * block_bytes / bandwidth
        waited = result.requests["scheduled"][1] - 5.0
        stored = 0.01 + seconds  # the store of a's prompt begins with the second step
        assert result.host["hits"] == 40
        assert waited == pytest.approx(seconds + max(0.0, stored - 5.0), abs=0.021)


def test_an_idle_engine_that_copies_in_circles_ends() -> None:
    requests = [request("a", 50, output=3), request("b", 25, output=3, arrive=10)]
    lazy = {"kv_offload_connector": "simple", "kv_offload_lazy": True, "kv_offload_num_chunks": 9}
    result = run(requests, num_gpu_blocks=24, max_num_batched_tokens=64, **lazy)
    assert result.status == "complete"
    assert result.host is not None
    assert result.host["circling"] == 1


def test_the_engine_s_death_is_told() -> None:
    requests = [request("a", [shared(40)]), request("b", [shared(40)], output=30, arrive=10)]
    result = run(requests, [{"at": 14, "op": "reset_prefix_cache", "reset_running_requests": True}], kv_offload_num_chunks=40)
    assert result.status == "crashed"
    assert any("AssertionError" in note for note in result.notes)


def test_slots_grow_while_loads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [request("a", [shared(16)])]
    many += [request(f"r{i}", [shared(16), {"seed": 50 + i, "n": 8}], arrive=40) for i in range(60)]

    def once() -> Run:
        off = {"enable_prefix_caching": False, "kv_offload_num_chunks": 20, "kv_offload_load_latency": 9}
        return run(many, num_gpu_blocks=2_000, max_num_seqs=1, **off)

    roomy = once()
    monkeypatch.setattr("simkv.engine.vllm.state.most_slots", lambda offload, resolved, n: 4)
    grown = once()
    assert grown.counters["finished"] == 61
    assert grown.host is not None
    assert grown.host["hits"] == 60 * 16
    assert grown.host == roomy.host
    assert grown.log is not None
    assert roomy.log is not None
    assert np.array_equal(grown.log.events, roomy.log.events)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"kv_offloading_backend": "lmcache"}, "kv_offloading_backend"),
        ({"engine_version": "0.29"}, "engine_version"),
        ({"sliding_window": 64}, "kv_offloading_size"),
        ({"kv_offload_block_size": 24}, "kv_offload_block_size"),
        ({"kv_offload_block_size": 32, "kv_offload_blocks_per_chunk": 2}, "kv_offload_block_size"),
    ],
)
def test_what_is_not_modelled_is_refused(changes, name: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SettingsError) as problem:
        replay(workload([request("a", 10)], block_size=16), EngineSettings(kv_offloading_size=1.0, **changes))
    assert name in str(problem.value)


def test_sizes_follow_from_gib_and_model() -> None:
    w = workload([request("a", 10)], block_size=16)
    s = EngineSettings(kv_offloading_size=4.0)
    native = resolve(s, w, check_pool=False).offload
    assert native is not None
    assert native.chunks == (4 << 30) // (16 * 131_072)
    four = resolve(s.replace(kv_offload_blocks_per_chunk=4), w, check_pool=False).offload
    assert four is not None
    assert four.chunks == native.chunks // 4
    simple = resolve(s.replace(kv_offload_connector="simple"), w, check_pool=False).offload
    assert simple is not None
    assert simple.chunks == native.chunks
