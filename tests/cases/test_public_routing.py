"""Questions people asked in public about routing between replicas, with the right answers (tests/cases/routing.json)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simkv.fleet.kv.request_keys import request_keys
from simkv.fleet.routing import Candidates, Content, RoutingPolicy, make_policy
from simkv.fleet.routing.policy import METRICS, KVEvents
from simkv.metrics.engines import gauge_over_engines
from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings, Settings, SglangSettings
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload
from tests.cases.public import assert_copy_is_true, cases, own
from tests.engine.hand import VIRTUAL, request, shared, workload

CASES = cases("routing")
ELSEWHERE: dict[str, str] = {}
NOT_HERE: dict[str, str] = {}
"""Cases that cannot be expressed, with the reason: none."""
HERE = ("P-MET-06", *(f"P-ROU-{n:02d}" for n in range(1, 10)))


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def test_every_case_is_covered_or_excused() -> None:
    assert {*HERE, *ELSEWHERE, *NOT_HERE} == set(CASES)


def test_the_copy_is_true() -> None:
    assert_copy_is_true("routing", "routing")


def fleet(w: Workload, replicas: int, router: str, settings: Settings | None = None, **more: Any) -> FleetRun:
    """Replayed through a fleet of equal replicas; every request ends."""
    found = replay_fleet(w, settings or EngineSettings(), FleetSettings(replicas=replicas, router=router, **more))
    assert found.status == "complete"
    assert found.summary()["finished"] == len(w)
    return found


def policy(name: str, w: Workload, workers: int, **settings: Any) -> RoutingPolicy:
    """One router process that knows its workers."""
    made = make_policy(name, Content(w, chars_per_token=1), workers, settings)
    for worker in range(workers):
        made.add_worker(worker, 0.0)
    return made


def candidates(loads: list[int]) -> Candidates:
    """All workers, with so many requests in flight."""
    return Candidates(list(range(len(loads))), np.array(loads, np.int64), np.zeros(len(loads), METRICS))


def groups(given: dict[str, Any], count: int) -> Workload:
    """Requests of several groups in turn, each when the one before has ended; a group has a session of its own."""
    requests = [
        request(f"r{i}", [shared(given["shared"], 1 + i % count), own(i, given["unique"])], arrive=i, session=f"group {i % count}")
        for i in range(count * given["requests_per_group"])
    ]
    return workload(requests, time=VIRTUAL, block_size=given["block_size"], num_gpu_blocks=20_000, max_model_len=4096)


def test_round_robin_loses_locality() -> None:
    """P-ROU-01: every replica computes every group's beginning."""
    given, right = case("P-ROU-01")
    w = groups(given, given["groups"])
    rates = []
    for name, tokens in zip(("round-robin", "session-ring"), right["hits"], strict=True):
        found = fleet(w, given["replicas"], name)
        assert found.counters["hits"] == tokens
        assert found.counters["queries"] == right["queries"]
        assert not any("artefact" in note for note in found.notes)
        rates.append(found.summary()["hit_rate"])
    assert rates == pytest.approx([right["round_robin_rate"], right["by_group_rate"]], abs=0.0001)


def test_affinity_with_one_group() -> None:
    """P-ROU-02: a hair more hits and much longer waits, by the policies themselves."""
    given, right = case("P-ROU-02")
    arrive = np.cumsum(np.random.default_rng(21199).exponential(1 / given["rate"], given["requests"])).tolist()
    requests = [
        request(f"r{i}", [shared(given["shared"]), own(i, given["unique"])], given["output"], arrive=at) for i, at in enumerate(arrive)
    ]
    w = workload(requests, time={"mode": "virtual", "a": 0.008, "b": 1 / 25_000, "c": 0.0}, max_model_len=16_384)
    settings = SglangSettings(page_size=given["page"], max_total_tokens=1_000_000, max_running_requests=256)
    assert given["groups"] == 1
    dealt = fleet(w, given["workers"], "round-robin", settings)
    # What all requests have in common is a share just below the router's threshold of 0.3; its load test would send some away.
    always = {"cache_threshold": 0.2, "balance_abs_threshold": 1000}
    aware = fleet(w, given["workers"], "sglang-cache-aware", settings, router_settings=always)
    assert dealt.summary()["hit_rate"] == pytest.approx(right["round_robin_hit"], abs=0.001)
    assert aware.summary()["hit_rate"] == pytest.approx(right["cache_aware_hit"], abs=0.001)
    assert 0 < aware.summary()["hit_rate"] - dealt.summary()["hit_rate"] < 0.001
    served = [r["requests"] for r in aware.summary()["per_replica"]]
    assert max(served) == sum(served)
    assert aware.summary()["ttft_s"]["p50"] > 1.5 * dealt.summary()["ttft_s"]["p50"]


def test_warm_but_busy_or_cold_but_idle() -> None:
    """P-ROU-03: production-stack's score; with beta 0 the cache alone decides."""
    given, right = case("P-ROU-03")
    size = 100
    w = workload([request("r0", [shared(given["prompt"])])], block_size=size, num_gpu_blocks=20, max_model_len=2000)
    keys = request_keys(w, size).of(0)[: given["a"]["matched"] // size]
    chosen = {}
    for beta in (given["beta"], 0.0):
        router = policy("production-stack-loadaware", w, 2, beta=beta, block_size=size)
        router.kv_events(0, KVEvents(np.ones(len(keys), np.uint8), keys, size))
        decision = router.decide(0, 0.0, candidates([given["a"]["load"], given["b"]["load"]]))
        chosen[beta] = "ab"[decision.allowed[0]]
        if beta:
            assert decision.scores is not None
            assert decision.scores.tolist() == pytest.approx([right["score_a"], right["score_b"]])
    assert chosen == {given["beta"]: right["choice"], 0.0: right["choice_with_beta_0"]}
    nothing_known = policy("production-stack-loadaware", w, 2)
    assert nothing_known.decide(0, 0.0, candidates([9, 1])).branch == "no statistics"


def test_sticky_sessions_with_two_router_processes() -> None:
    """P-ROU-04: each process has a table of its own, and binds the session to a worker of its own."""
    given, right = case("P-ROU-04")
    turn = given["tokens_added_per_turn"]
    requests = [request(f"t{k}", [shared(turn * (k + 1))], arrive=100 * k, session="chat") for k in range(given["turns"])]
    w = workload(requests, time=VIRTUAL, block_size=given["block_size"], num_gpu_blocks=10_000, max_model_len=10_000)
    one = fleet(w, given["workers"], "sglang-manual")
    assert len(set(one.placed.tolist())) == 1
    two = next(
        found
        for found in (fleet(w, given["workers"], "sglang-manual", routers=given["router_replicas"], seed=seed) for seed in range(10))
        if len(set(found.placed.tolist())) == 2
    )
    assert two.decisions["router"].tolist() == [0, 1] * (given["turns"] // 2)
    assert [one.counters["hits"], two.counters["hits"]] == [right["one_router_hits"], right["two_routers_hits"]]
    assert one.counters["queries"] == two.counters["queries"] == right["queries"]
    assert [one.summary()["hit_rate"], two.summary()["hit_rate"]] == pytest.approx(right["rates"], abs=0.0001)
    hashed = fleet(w, given["workers"], "session-ring", routers=given["router_replicas"])
    assert hashed.counters["hits"] == right["one_router_hits"], "a hash needs no table"


def test_a_miss_goes_to_the_smallest_tree() -> None:
    """P-ROU-05: Ray Serve picks the replica with the fewest characters, though it has the most requests; sglang-router does not."""
    given, right = case("P-ROU-05")
    a, b = given["workers"]
    prompts = [[own(0, a["tree_tokens"])], [own(1, b["tree_tokens"])], [own(2, 100)]]
    w = workload([request(f"r{i}", p) for i, p in enumerate(prompts)], max_model_len=100_000)
    now = candidates([a["inflight"], b["inflight"]])
    chosen = {}
    for name in ("ray-prefix-aware", "sglang-cache-aware"):
        router = policy(name, w, 2)
        for req in (0, 1):
            router.decide(req, float(req), candidates([0, 0]))
            router.commit(req, req, float(req))
        decision = router.decide(2, 2.0, now)
        assert decision.matched == 0
        chosen[name] = [given["workers"][worker]["id"] for worker in decision.allowed]
    assert chosen == {"ray-prefix-aware": [right["smallest_tree_choice"]], "sglang-cache-aware": [right["load_aware_choice"]]}


@pytest.mark.parametrize("count", [4, 3, 5])
def test_round_robin_that_looks_like_affinity(count: int) -> None:
    """P-ROU-06: four groups in strict turn over four replicas is an artefact, and the run says so."""
    given, right = case("P-ROU-06")
    found = fleet(groups(given, count), given["replicas"], "round-robin")
    warned = [note for note in found.notes if "artefact of the order: shuffle the arrivals" in note]
    assert bool(warned) == (count == given["groups"])
    if count == given["groups"]:
        assert found.summary()["hit_rate"] == pytest.approx(right["round_robin_rate"], abs=0.0001)
        affine = fleet(groups(given, count), given["replicas"], "session-ring")
        assert affine.summary()["hit_rate"] == pytest.approx(right["by_group_rate"], abs=0.0001)
    elif count == 5:
        assert found.summary()["hit_rate"] == pytest.approx(0.7529, abs=0.0001)


def test_a_burst_before_anything_is_warm() -> None:
    """P-ROU-07: events that tell of the past say the same of every replica, so each one it spreads to computes the prefix."""
    given, right = case("P-ROU-07")
    requests = [request(f"r{i}", [shared(given["shared"]), own(i, given["unique"])], 2, session="all") for i in range(given["burst"])]
    w = workload(requests, time=VIRTUAL, block_size=16, num_gpu_blocks=2000, max_model_len=4096, max_num_batched_tokens=8192)
    assert given["scorer"] == "past state only"
    precise = policy("llm-d-precise-prefix", w, given["replicas"])
    decision = precise.decide(0, 0.0, candidates([0] * given["replicas"]))
    assert decision.scores is not None
    assert (len(set(decision.scores.tolist())) == 1) == right["all_scores_equal"]
    assert len(decision.allowed) == given["replicas"]
    computed = {}
    for name in ("llm-d-precise-prefix", "round-robin", "session-ring"):
        found = fleet(w, given["replicas"], name, seed=7)
        assert not found.decisions["best_cached"].any(), "no cache holds anything when the burst comes"
        computed[name] = sum(int(r.steps["prefill"].sum()) for r in found.replicas)
        prefixes = (computed[name] - given["burst"] * given["unique"]) / given["shared"]
        assert prefixes == len(set(found.placed.tolist()))
    own_tokens = given["burst"] * given["unique"]
    assert (computed["round-robin"] - own_tokens) / given["shared"] == right["prefix_prefills_if_spread"]
    assert (computed["session-ring"] - own_tokens) / given["shared"] == right["co_located_prefills"]
    assert computed["round-robin"] - computed["session-ring"] == right["extra_prefill_tokens"]
    assert computed["llm-d-precise-prefix"] > computed["session-ring"]


def test_adding_a_replica_moves_sessions() -> None:
    """P-ROU-08: nearly all of them with a hash modulo N, the new replica's share with a ring."""
    given, right = case("P-ROU-08")
    n, before, after = given["sessions"], given["replicas_before"], given["replicas_after"]
    w = workload([request(f"r{i}", 4, session=f"session {i}") for i in range(n)])
    for names, share, off in ((("session-hash",), right["moved_share"][0], 0.02), (RINGS, right["moved_share"][1], 0.05)):
        for name in names:
            router = policy(name, w, after)
            few, more = candidates([0] * before), candidates([0] * after)
            old = [router.decide(i, 0.0, few).allowed[0] for i in range(n)]
            new = [router.decide(i, 1.0, more).allowed[0] for i in range(n)]
            moved = [i for i in range(n) if old[i] != new[i]]
            assert len(moved) / n == pytest.approx(share, abs=off)
            if name in RINGS:
                assert {new[i] for i in moved} == {after - 1}


RINGS = ("session-ring", "production-stack-session")


def test_a_session_id_that_begins_like_another() -> None:
    """P-ROU-09: to a router that compares beginnings the two ids are one session; as keys they are two."""
    given, right = case("P-ROU-09")
    ids = given["ids"]
    as_text = workload([request(name, [list(name.encode())]) for name in ids])
    router = policy("sglang-cache-aware", as_text, 2, cache_threshold=given["threshold"])
    router.decide(0, 0.0, candidates([0, 0]))
    router.commit(0, 1, 0.0)
    decision = router.decide(1, 1.0, candidates([0, 9]))
    assert right["similarity"] == ">=0.88"
    assert decision.matched / decision.total >= 0.88
    assert (list(decision.allowed) == [1]) == right["wrongly_same"]
    many = [*ids, *(f"session-1{k}" for k in range(100, 130))]
    keyed = workload([request(name, 4, session=name) for name in many])
    table = policy("sglang-manual", keyed, 4)
    table.commit(0, 1, 0.0)
    assert (list(table.decide(1, 1.0, candidates([0] * 4)).allowed) == [1]) == right["exact_match"]
    assert len(table.decide(1, 1.0, candidates([0] * 4)).allowed) == 4
    hashed = policy("session-hash", keyed, 4)
    assert len({hashed.decide(i, 0.0, candidates([0] * 4)).allowed[0] for i in range(len(many))}) == 4


def test_only_one_engines_gauge_is_used() -> None:
    """P-MET-06: a data-parallel server exports one gauge an engine; the fullest is the one to alert on."""
    given, right = case("P-MET-06")
    found = gauge_over_engines("\n".join(given["exposition"]), "vllm:kv_cache_usage_perc")
    assert found is not None
    assert (len(found.values), found.most) == (right["engines"], right["max"])
    assert found.mean == pytest.approx(right["mean"])
    assert right["alert_on"] == "max"
    assert found.values == {"0": 0.10, "1": 0.95}
    assert "engine 1 at 95 %" in found.sentence
