"""Questions people asked in public about preemption and admission, with the right answers (tests/cases/preempt.json)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from simkv.diagnosis.seats import Seats
from simkv.engine.resolve import resolve
from simkv.errors import SettingsError
from simkv.events import layout as ev
from simkv.hardware import GIB, capacity, find_gpu, kv_bytes_per_token
from simkv.hardware.pool_from_usage import pool_from_usage
from simkv.metrics.retired import find_retired
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from tests.cases.public import assert_copy_is_true, cases, own, run
from tests.engine.hand import VIRTUAL, request, shared, workload

CASES = cases("preempt")
ELSEWHERE = {"P-APC-14": "test_public_apc_pool.py"}
NOT_HERE: dict[str, str] = {}
"""Cases that cannot be expressed, with the reason: none."""
HERE = tuple(f"P-PRE-{n:02d}" for n in range(1, 8))


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def test_every_case_is_covered_or_excused() -> None:
    assert {*HERE, *ELSEWHERE, *NOT_HERE} == set(CASES)


def test_the_copy_is_true() -> None:
    assert_copy_is_true("preempt", "preempt")


def a_fifth(reserve: bool) -> Run:
    """Four long requests decode, a fifth comes; no prefix cache, so that nothing computed is found again."""
    given, _ = case("P-PRE-01")
    long = [request(f"r{i}", [own(i, given["running_tokens_each"])], 400) for i in range(given["running"])]
    fifth = request("fifth", [own(9, given["new_prompt"])], 10, arrive=5.0)
    return run(
        [*long, fifth],
        time={"mode": "virtual", "a": 0.01, "b": 1e-5, "c": 0.0},
        block_size=given["block_size"],
        num_gpu_blocks=given["pool_blocks"] + 1,
        max_num_batched_tokens=given["chunk"],
        scheduler_reserve_full_isl=reserve,
        enable_prefix_caching=False,
    )


def test_admitted_chunk_by_chunk_it_dies_and_tries_again() -> None:
    """P-PRE-01: if only the first chunk must fit, the fifth is computed up to where the pool ends, thrown out, and begins again."""
    given, right = case("P-PRE-01")
    assert given["admission"] == ["first chunk fits", "whole prompt fits"]
    found = a_fifth(reserve=False)
    turn = int(np.searchsorted(found.steps["time"], 5.0)) - 1
    assert right["free_tokens_before"] == "about 44400"
    assert found.steps["free"][turn] * given["block_size"] == pytest.approx(44_400, rel=0.01)
    log = found.log
    assert log is not None
    kind, mine = log.events["kind"] & ev.KIND_MASK, log.events["req"] == 4
    out = np.flatnonzero((kind == ev.PREEMPTED) & mine)
    assert len(out) == found.counters["preemptions"] > 10
    computed = np.where((kind == ev.SCHEDULED) & mine, log.events["arg"], 0)
    wasted = [int(computed[low:high].sum()) for low, high in zip([0, *out[:-1]], out, strict=True)]
    assert wasted[0] == 5 * (given["chunk"] - given["running"])
    assert max(wasted) <= 40_960
    assert right["wasted_tokens_per_cycle"] == ">=40000"
    assert np.mean(wasted) >= 40_000 * 0.9


def test_with_room_for_the_whole_prompt_it_waits() -> None:
    """P-PRE-01: scheduler_reserve_full_isl."""
    _, right = case("P-PRE-01")
    found = a_fifth(reserve=True)
    assert right["whole_prompt_mode"] == "waits, 0 preemptions"
    assert found.counters["preemptions"] == 0
    assert found.requests["scheduled"][4] >= found.requests["finish"][:4].min()
    assert int(found.steps["prefill"].sum()) == 5 * 100_000


@cache
def reserved(watermark: float) -> Run:
    """Clients that send a long-answer request each as soon as the one before is answered."""
    given, _ = case("P-PRE-02")
    draws = np.random.default_rng(44594)
    lengths = zip(draws.integers(900, 1101, given["prompts"]), draws.integers(4000, 6001, given["prompts"]), strict=True)
    clients = given["concurrency"]
    requests = [
        request(f"r{i}", [own(i, int(n))], int(m), **({"after": f"r{i - clients}"} if i >= clients else {}))
        for i, (n, m) in enumerate(lengths)
    ]
    pool = given["pool_tokens"] // given["block_size"] + 1
    config = {"num_gpu_blocks": pool, "max_model_len": 8192, "max_num_seqs": clients, "max_num_batched_tokens": 8192}
    w = workload(requests, time={"mode": "seconds"}, block_size=given["block_size"], async_scheduling=True, **config)
    found = replay(w, EngineSettings(model="Llama-3.1-8B", watermark=watermark), events=False)
    assert found.status == "complete"
    return found


def test_how_much_to_keep_free() -> None:
    """P-PRE-02: preemptions fall with the reserve, throughput is best at a small one, and a wait is traded for steadier answers."""
    given, right = case("P-PRE-02")
    runs = [reserved(mark) for mark in given["watermarks"]]
    preemptions = [r.counters["preemptions"] for r in runs]
    assert preemptions == sorted(preemptions, reverse=True)
    for found, measured in zip(preemptions, right["measured_preemptions"], strict=True):
        assert measured / 3 < found < measured * 3
    rates = [float(r.requests["generated"].sum()) / r.end_time_s for r in runs]
    assert rates.index(max(rates)) in (1, 2)
    assert np.argmax(right["measured_out_tok_s"]) in (1, 2)
    first, last = runs[0].summary(), runs[-1].summary()
    assert last["ttft_s"]["p50"] > first["ttft_s"]["p50"]
    assert last["itl_s"]["p99"] < first["itl_s"]["p99"] / 2


def test_a_request_that_can_never_be_scheduled() -> None:
    """P-PRE-03: refused at start-up; where the pool comes from a recording, flagged, and the run says that it hangs."""
    given, right = case("P-PRE-03")
    assert "needs 125 blocks, 99 usable" in right["verdict"]
    pool = {"num_gpu_blocks": given["num_gpu_blocks_override"], "max_model_len": given["max_model_len"]}
    requests = [request("long", given["request_tokens"] - 1), request("short", 20, arrive=1)]
    with pytest.raises(SettingsError, match="for 99 usable blocks"):
        resolve(EngineSettings(**pool), workload(requests, block_size=given["block_size"], num_gpu_blocks=1000, max_model_len=4000))
    found = replay(workload(requests, block_size=given["block_size"], **pool))
    assert found.status == "stalled"
    assert any("long (2,000 tokens) needs 125 blocks, and 99 are usable: it can never be served" in n for n in found.resolved.notes)
    assert any("Nothing can be scheduled any more" in note for note in found.notes)
    assert np.isnan(found.requests["scheduled"]).all()


def test_more_seats_than_memory() -> None:
    """P-PRE-04: tokens per seat, how many seats are safe, and what a run with each does."""
    given, right = case("P-PRE-04")
    gib = given["gpu_total_gib"] * given["util"] - given["weights_gib"] - given["other_gib"]
    pool = capacity(EngineSettings(model="Llama-3.1-8B"), available_kv_bytes=int(gib * GIB))
    assert pool.kv_tokens == pytest.approx(right["kv_tokens"], rel=0.01)
    found = Seats(pool.kv_tokens, given["max_num_seqs"], given["p95_total_tokens"])
    assert found.tokens_per_seat == pytest.approx(right["tokens_per_seat"], rel=0.01)
    assert found.safe_max_num_seqs == pytest.approx(right["safe_max_num_seqs"], abs=1)
    assert found.sentence is not None
    assert right["verdict"].startswith("seats exceed memory")
    assert "Seats exceed memory" in found.sentence

    draws = np.random.default_rng(4)
    requests = [request(f"r{i}", [own(i, int(n))], int(m)) for i, (n, m) in enumerate(draws.integers(300, 1001, (600, 2)))]
    for seats, storm in ((given["max_num_seqs"], True), (right["safe_max_num_seqs"], False)):
        r = run(
            requests,
            time=VIRTUAL,
            events=False,
            block_size=16,
            num_gpu_blocks=pool.num_gpu_blocks,
            max_model_len=4096,
            max_num_seqs=seats,
            max_num_batched_tokens=8192,
        )
        assert (r.counters["preemptions"] > 100) == storm
        assert any("Seats exceed memory" in note for note in r.notes) == storm


def test_one_long_prompt_starves_everyone() -> None:
    """P-PRE-05: it takes every step's whole budget; a short request waits behind it unless long prefills are capped."""
    given, right = case("P-PRE-05")
    budget = given["max_num_batched_tokens"]
    requests = [request("long", [shared(given["prompt"])]), request("short", 10, arrive=1)]
    found = run(requests, block_size=16, max_num_batched_tokens=budget)
    assert int(np.count_nonzero(found.steps["prefill"] == budget)) == right["steps"] - 1
    assert found.requests["first_token"][0] - found.requests["scheduled"][0] == right["steps"]
    assert found.requests["scheduled"][1] >= right["steps"] - 1
    assert any(f"takes {right['steps']} steps of max_num_batched_tokens={budget}" in note for note in found.resolved.notes)
    for change in ({"max_num_batched_tokens": given["prompt"] + 16}, {"long_prefill_token_threshold": budget // 2}):
        better = run(requests, block_size=16, **{"max_num_batched_tokens": budget, **change})
        assert better.requests["scheduled"][1] <= 2
        assert not any("short requests wait" in note for note in better.resolved.notes)


def test_an_old_runbook() -> None:
    """P-PRE-06: what V1 does not emit, and what to read instead."""
    given, right = case("P-PRE-06")
    assert "use num_preemptions and offload metrics" in right["verdict"]
    swapped, host = (find_retired(name) for name in given["runbook_metrics"])
    assert swapped is not None
    assert host is not None
    assert (swapped.gone, host.gone) == ("V1", "V1")
    assert swapped.instead == "vllm:num_preemptions"
    assert "computed again" in swapped.sentence
    assert "kv_offload" in host.instead
    assert find_retired("--preemption-mode=swap") is not None
    assert find_retired('vllm_gpu_cache_usage_perc{engine="0"}') is not None
    assert find_retired("vllm:num_preemptions_total") is None


def test_usage_that_creeps_up() -> None:
    """P-PRE-07: the slope says how large the pool is; it is what model and GPU leave, so generated tokens explain it."""
    given, right = case("P-PRE-07")
    per_token = kv_bytes_per_token(given["model"])
    assert per_token == right["architecture_bytes_per_token"]
    gpu = find_gpu("L40S")  # the table has no L40; memory is the same
    assert given["gpu"] == f"L40 {gpu.marketing_gb}GB"
    expected = capacity(EngineSettings(model=given["model"], gpu=gpu.name, engine_version="0.13")).kv_tokens
    found = pool_from_usage(given["usage_start"], given["usage_end"], given["seconds"], given["avg_tok_s"], per_token, expected)
    assert found.tokens == pytest.approx(right["inferred_pool_tokens"], rel=0.1)
    assert found.gib == pytest.approx(right["inferred_pool_gib"], rel=0.1)
    assert found.explained
    assert "a runaway generation, not a leak" in found.sentence
    leak = pool_from_usage(given["usage_start"], given["usage_end"] * 3, given["seconds"], given["avg_tok_s"], per_token, expected)
    assert not leak.explained


def test_a_replay_creeps_up_alike() -> None:
    """P-PRE-07: one request without a limit in that pool; what is inferred from its usage is the pool."""
    given, _ = case("P-PRE-07")
    blocks = 75_000
    speed = {"mode": "virtual", "a": 0.0, "b": 0.0, "c": 1 / given["avg_tok_s"]}
    r = run([request("chat", 4000, 40_000)], time=speed, events=False, block_size=16, num_gpu_blocks=blocks + 1)
    first, last = np.searchsorted(r.steps["time"], [10.0, 10.0 + given["seconds"]])
    usage = 1.0 - r.steps["free"] / blocks
    assert pool_from_usage(float(usage[first]), float(usage[last]), given["seconds"], given["avg_tok_s"], 32768).tokens == pytest.approx(
        blocks * 16, rel=0.01
    )
    with pytest.raises(SettingsError, match="usage_end"):
        pool_from_usage(0.5, 0.4, 1.0, 1.0, 1)
    with pytest.raises(SettingsError, match="tokens_per_s"):
        pool_from_usage(0.1, 0.4, 1.0, 0.0, 1)
