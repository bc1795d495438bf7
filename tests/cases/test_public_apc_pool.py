"""Questions people asked in public about automatic prefix caching, with the right answers (tests/cases/apc.json): pools and counters."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from simkv.diagnosis.history import cut_history
from simkv.diagnosis.keys import request_keys
from simkv.diagnosis.resumed import hit_origin
from simkv.diagnosis.why import why_missed
from simkv.events.folds.pool import pool_at
from simkv.metrics.series import LOG_LINE_REQUESTS, series
from simkv.replay import replay
from simkv.settings import EngineSettings
from tests.cases.public import cases, hits, one_by_one, own, rate, run
from tests.engine.hand import request, shared, workload

CASES = cases("apc")
ELSEWHERE = {
    "P-APC-12": "test_public_tier.py",
    "P-APC-22": "test_public_tier.py",
    "P-ROU-01": "test_public_routing.py",
}
NOT_HERE: dict[str, str] = {
    "P-APC-17": "speculative decoding is not modelled",
}
"""Cases that cannot be expressed, with the reason."""
HERE = tuple(f"P-APC-{n:02d}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 18, 19, 20, 21))


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def test_every_case_is_covered_or_excused() -> None:
    assert {*HERE, *ELSEWHERE, *NOT_HERE} == set(CASES)


def test_a_shared_prefix_shorter_than_a_block() -> None:
    """P-APC-03: nothing can be found, which is told apart from nothing being shared."""
    given, right = case("P-APC-03")
    prompts = [[shared(given["shared_prefix"]), own(i, given["unique"])] for i in range(given["requests"])]
    for size in given["block_sizes"]:
        found = one_by_one(prompts, block_size=size)
        assert found.counters["hits"] == right[f"hits_{size}"]
        assert rate(found) == right[f"hit_rate_{size}"]
        noted = [note for note in found.notes if "less than one block" in note]
        assert bool(noted) == (size == max(given["block_sizes"]))
        for note in noted:
            assert f"up to {given['shared_prefix']} tokens" in note
            assert "neither a bug nor missing reuse" in note
            assert f"{(given['requests'] - 1) * given['shared_prefix'] / (540 * given['requests']):.1%} of all" in note
    alone = one_by_one([[own(i, 540)] for i in range(given["requests"])], block_size=max(given["block_sizes"]))
    assert not [note for note in alone.notes if "less than one block" in note]


def test_hits_of_preempted_requests() -> None:
    """P-APC-14: no prompt shares anything; an old release's counters show hits all the same, of requests that resume."""
    given, right = case("P-APC-14")
    rng = np.random.default_rng(14)
    prompts = [request(f"r{i}", [own(i, given["input"])], given["output"], arrive=float(rng.random())) for i in range(given["prompts"])]
    w = workload(prompts, time={"mode": "seconds"}, **SERVER_OF_2025)
    assert given["shared_prefix"] == 0
    found = replay(w, EngineSettings(engine_version="0.10", model="Llama-3.1-8B"))
    origin = hit_origin(found)
    assert origin.preemptions > 0
    assert origin.first_rate == right["cross_request_hit_rate"]
    assert origin.counted is not None
    assert origin.counted > 0.1
    assert origin.resumed_hits is not None
    assert origin.resumed_hits > 0
    busy = found.steps["running"] == found.steps["running"].max()
    assert abs(int(found.steps["running"][busy][0]) - given["running"]) < given["running"] / 2
    assert any("num_preemptions" in note for note in found.notes)
    later = replay(w, EngineSettings(engine_version="0.32", model="Llama-3.1-8B"))
    assert hit_origin(later).counted == right["cross_request_hit_rate"]
    assert later.counters["recompute_hits"] == hit_origin(later).resumed_hits


SERVER_OF_2025 = {
    "block_size": 16,
    "num_gpu_blocks": 25_000,
    "max_model_len": 4096,
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "scheduler_reserve_full_isl": False,
}


def test_per_repeat_and_cumulative() -> None:
    """P-APC-15: both statements are right."""
    given, right = case("P-APC-15")
    found = one_by_one([[shared(given["prompt_tokens"])]] * given["requests"], block_size=given["block_size"])
    assert found.counters["queries"] == right["queries"]
    assert found.counters["hits"] == right["hits"]
    assert rate(found) == pytest.approx(right["cumulative_rate"], abs=0.0005)
    assert hits(found)[-1] / given["prompt_tokens"] == pytest.approx(right["per_repeat_rate"], abs=0.0001)


def test_the_deepest_block_goes_first() -> None:
    """P-APC-16: three usable blocks of one token; another prompt takes the last block of [1, 2, 3], not the first."""
    given, right = case("P-APC-16")
    steps = [[1, 2, 3], [9], [1, 2, 3]]
    assert [step.split(" ", 1)[0] for step in given["steps"]] == ["run", "run", "ask"]
    assert [json.loads(step.rpartition(" ")[2]) for step in given["steps"]] == steps
    requests = [request(f"r{i}", [prompt], arrive=10 * i) for i, prompt in enumerate(steps)]
    found = run(requests, block_size=given["block_size"], num_gpu_blocks=given["pool_blocks"] + 1, max_model_len=4)
    turn = int(np.flatnonzero(found.steps["time"] < 20)[-1])
    assert found.log is not None
    held = pool_at(found.log, turn).key
    keys = request_keys(found, 0)
    assert [bool((held == key).any()) for key in keys[:3]] == [True, True, False]
    assert steps[0][2] == right["evicted_block"]
    assert hits(found)[2] // given["block_size"] == right["cached_blocks"] > right["wrong_answer_if_head_first"]


def test_no_cached_block_without_its_parent() -> None:
    """P-APC-16: the order of release keeps it so; random prompts in a pool that evicts all the time."""
    rng = random.Random(16)
    requests = []
    for i in range(60):
        prompt = [rng.randrange(1, 3) for _ in range(rng.randrange(1, 9))]
        requests.append(request(f"r{i}", [prompt], 1, arrive=10 * i))
    found = run(requests, block_size=1, num_gpu_blocks=10, max_model_len=9)
    chains = [request_keys(found, i)[: len(r["prompt"][0])] for i, r in enumerate(requests)]
    assert found.counters["removed"] > 100
    assert found.log is not None
    for turn in range(len(found.steps)):
        held = set(pool_at(found.log, turn).key.tolist())
        for chain in chains:
            cached = [key in held for key in chain.tolist()]
            assert cached == sorted(cached, reverse=True)


def test_usage_falls_to_nothing_and_the_cache_stays() -> None:
    """P-APC-18: three states of a block: in use, cached and reclaimable, empty."""
    given, right = case("P-APC-18")
    tokens = 4000
    assert f"{tokens}-token" in given["steps"][0]
    found = one_by_one([[shared(tokens)], [shared(tokens)]], block_size=given["block_size"], num_gpu_blocks=1000)
    assert found.log is not None
    turn = int(np.flatnonzero(found.steps["finished"] > 0)[0])
    pool = pool_at(found.log, turn)
    assert pool.usage == right["usage_after"]
    cached_and_free = int(np.count_nonzero((pool.key != 0) & (pool.ref == 0)))
    assert f">={cached_and_free}" == right["cached_but_free_blocks"]
    assert np.count_nonzero(pool.ref[1:] > 0) + cached_and_free + np.count_nonzero((pool.key[1:] == 0) & (pool.ref[1:] == 0)) == 999
    assert hits(found)[1] == right["cached_tokens_on_resend"]


@pytest.mark.parametrize("version", ["0.23", "0.32"])
def test_a_scan_pushes_the_hot_prefix_out(version: str) -> None:
    """P-APC-19: the curve of what is left of the hot prompt, with its knee, over the number of prompts that come once."""
    given, right = case("P-APC-19")
    left = []
    for scans in given["scans"]:
        prompts = [[shared(given["hot_prompt_tokens"])], *([own(i, given["scan_prompt_tokens"])] for i in range(scans))]
        requests = [request(f"r{i}", p, arrive=10 * i) for i, p in enumerate([*prompts, prompts[0]])]
        found = run(requests, version, block_size=given["block_size"], num_gpu_blocks=given["usable_blocks"] + 1, max_model_len=4096)
        left.append(hits(found)[-1])
    assert left == right["hot_cached_after"]
    miss = why_missed(found, len(requests) - 1)
    assert (miss.kind, miss.evicted_for) == ("evicted", len(requests) - 2)


def test_what_five_prompts_in_three_rounds_can_reach() -> None:
    """P-APC-20: no more than two thirds; the engine's line is over at most the latest 1000 requests."""
    given, right = case("P-APC-20")
    prompts, rounds = given["distinct_prompts"], given["rounds"]
    sent = [[own(k, 6000 + 100 * k)] for k in range(prompts)] * rounds
    found = one_by_one(sent, block_size=16)
    assert rate(found) == pytest.approx(right["upper_bound_cumulative"], abs=0.005)
    assert LOG_LINE_REQUESTS == 1000
    line = series(found)["hit_rate_last_1000"]
    assert float(line[-1]) == rate(found)
    small = run([request(f"r{i}", p, arrive=10 * i) for i, p in enumerate(sent)], block_size=16, num_gpu_blocks=1500, max_model_len=8192)
    assert rate(small) < 0.21
    assert why_missed(small, len(sent) - 1).kind == "evicted"


def test_a_prompt_that_arrives_shorter() -> None:
    """P-APC-21: a proxy strips prior reasoning; the run says how much was removed and where the prefix breaks."""
    given, right = case("P-APC-21")
    first, answer, question = 80_000, 3_000, 4_000
    thought = given["sent_tokens"] - first - answer - question
    said = shared(thought + answer, 7)
    whole = [shared(first), said, own(2, question)]
    stripped = [shared(first), shared(answer, 7) | {"start": thought}, own(2, question)]
    found = {}
    for name, prompt in (("whole", whole), ("stripped", stripped)):
        requests = [
            request("t0", [shared(first)], thought + answer + 1, out_seed=7, session="chat"),
            request("t1", prompt, arrive=100_000, session="chat"),
        ]
        found[name] = run(requests, block_size=16, max_num_batched_tokens=100_000)
    assert [int(found[name].workload.num_prompt[1]) for name in found] == [given["sent_tokens"], given["counted_by_engine"]]
    cut = cut_history(found["stripped"].workload)
    assert cut is not None
    assert cut.removed_share == pytest.approx(right["removed_share"], abs=0.005)
    assert cut.sentence in found["stripped"].notes
    assert "strips prior reasoning" in cut.sentence
    assert cut_history(found["whole"].workload) is None
    miss = why_missed(found["stripped"], 1)
    assert (miss.cause, miss.hit_tokens) == ("history cut", first)
