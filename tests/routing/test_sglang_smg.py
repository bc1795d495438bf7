"""cache_aware of sglang-router and smg, compiled, against a slow model; and the rules of their other policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.fleet.routing import make_policy
from simkv.fleet.routing.policy import METRICS, Candidates, Content
from simkv.fleet.routing.tree_policy import TextTreePolicy
from tests.routing.made import WORDS, WORKERS, Fleet, Life, lives, prompts, spelled, workload_of
from tests.routing.reference_sglang import Tree, sglang_decide, smg_decide

CHARS = 4
rules = st.fixed_dictionaries(
    {
        "cache_threshold": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "balance_abs_threshold": st.sampled_from([0, 1, 2, 64]),
        "balance_rel_threshold": st.sampled_from([1.0, 1.3, 1.5, 2.0]),
    }
)
Rules = dict[str, float]


def follow(life: Life, policy: TextTreePolicy, decide: Callable[..., Any], rule: Rules, evict: Callable[[Tree, list[int]], None]) -> None:
    """The same events for both; decision, branch, match and sizes agree after each."""
    fleet, req, tree = Fleet(), 0, Tree()
    smg = policy.name.startswith("smg")
    for w in fleet.order:
        policy.add_worker(w, 0.0)
    tree.clock = 0 if smg else WORKERS * (WORKERS + 1) // 2
    for time, (kind, number) in enumerate(life.events):
        now = float(time)
        if kind == "route":
            text = tuple(spelled(life.prompts[req]))
            decision = policy.decide(req, now, fleet.candidates)
            allowed, branch, matched = decide(tree, text, fleet.order, fleet.load, rule)
            assert (sorted(decision.allowed), decision.branch, decision.matched) == (sorted(allowed), branch, matched)
            worker = allowed[number % len(allowed)]
            policy.commit(req, worker, now)
            tree.place(text, worker, branch != "imbalanced", branch == "match")
            fleet.start(worker)
            req += 1
        elif kind == "finish":
            fleet.finish(number)
        elif kind == "tick":
            policy.tick(now)
            evict(tree, list(range(WORKERS)))
        elif kind == "leave" and (gone := fleet.leave(number)) is not None:
            policy.remove_worker(gone, now)
            tree.remove(gone)
        elif kind == "join" and (new := fleet.join(number)) is not None:
            policy.add_worker(new, now)
            tree.clock += 0 if smg else len(fleet.order)
        assert policy.tree_sizes().tolist() == [tree.sizes.get(w, 0) for w in range(WORKERS)]


@settings(max_examples=200, deadline=None)
@given(lives(prompts), rules, st.sampled_from([0, 4, 9, 1000]))
def test_sglang_cache_aware(life: Life, rule: Rules, limit: int) -> None:
    content = Content(workload_of(life.prompts, WORDS), CHARS)
    policy = make_policy("sglang-cache-aware", content, WORKERS, {**rule, "max_tree_size": limit * CHARS})
    assert isinstance(policy, TextTreePolicy)
    follow(life, policy, sglang_decide, rule, lambda tree, workers: [tree.evict([w], limit) for w in workers] and None)


@settings(max_examples=200, deadline=None)
@given(lives(prompts), rules, st.sampled_from([0, 4, 9, 30, 1000]))
def test_smg_cache_aware(life: Life, rule: Rules, limit: int) -> None:
    content = Content(workload_of(life.prompts, WORDS), CHARS)
    policy = make_policy("smg-cache-aware", content, WORKERS, {**rule, "max_tree_size": limit * CHARS})
    assert isinstance(policy, TextTreePolicy)
    follow(life, policy, smg_decide, rule, lambda tree, workers: tree.evict(workers, limit))


def candidates(workers: int, inflight: list[int] | None = None, order: list[int] | None = None) -> Candidates:
    metrics = np.zeros(workers, METRICS)
    metrics["time"] = np.nan
    return Candidates(order or list(range(workers)), np.array(inflight or [0] * workers, np.int64), metrics)


def content_of(n: int, units: int = 40, keys: list[str | None] | None = None, chars: int = CHARS) -> Content:
    return Content(workload_of([[(i, 0, units)] for i in range(n)], []), chars, keys)


def test_the_tree_grows_beyond_its_first_arrays() -> None:
    n = 3000
    policy = make_policy("smg-cache-aware", content_of(n), 2)
    for i in range(n):
        policy.commit(i, i % 2, 0.0)
    for i in (0, 1, 1500, n - 1):
        decision = policy.decide(i, 0.0, candidates(2))
        assert (list(decision.allowed), decision.matched) == ([i % 2], 40)


def test_token_ids_match_in_whole_pages() -> None:
    w = workload_of([[(1, 0, 50)], [(1, 0, 25), (2, 0, 25)], [(1, 0, 50)]], [])
    policy = make_policy("smg-cache-aware", Content(w), 2, {"prompts_as": "input_ids", "cache_threshold": 0.5})
    policy.commit(0, 1, 0.0)
    assert policy.decide(1, 0.0, candidates(2)).matched == 16
    policy.commit(1, 0, 0.0)
    decision = policy.decide(2, 0.0, candidates(2))
    assert (list(decision.allowed), decision.matched, decision.total) == ([1], 48, 50)


def test_round_robin_of_smg_counts_for_every_list() -> None:
    policy = make_policy("smg-round-robin", content_of(20), 3)

    def take(order: list[int], n: int) -> list[int]:
        out = []
        for _ in range(n):
            (worker,) = policy.decide(0, 0.0, candidates(3, order=order)).allowed
            policy.commit(0, worker, 0.0)
            out.append(worker)
        return out

    assert take([0, 1, 2], 4) == [0, 1, 2, 0]
    assert take([0, 1], 3) == [1, 0, 1]
    assert take([0, 1, 2], 2) == [1, 2]
    assert take([1, 0, 2], 1) == [2]


@pytest.mark.parametrize(("name", "blind"), [("sglang-power-of-two", True), ("smg-power-of-two", False)])
def test_two_choices_compare_tokens_once_reported(name: str, blind: bool) -> None:
    policy = make_policy(name, content_of(1), 3)
    c = candidates(3, [0, 5, 9])
    first = policy.decide(0, 0.0, c)
    assert sorted(first.allowed) == ([0, 1, 2] if blind else [0, 1])
    c.metrics["time"], c.metrics["tokens"] = 1.0, [900, 10, 50]
    second = policy.decide(0, 1.0, c)
    assert dict(zip(second.allowed, second.weights or (), strict=True)) == pytest.approx({1: 2 / 3, 2: 1 / 3})


@pytest.mark.parametrize("name", ["sglang-manual", "smg-manual"])
def test_a_session_stays_returns_and_is_forgotten(name: str) -> None:
    policy = make_policy(name, content_of(3, keys=["a", "a", None]), 3, {"assignment_mode": "min_group", "max_idle_secs": 100})
    policy.commit(0, 1, 0.0)
    assert list(policy.decide(1, 1.0, candidates(3)).allowed) == [1]
    assert sorted(policy.decide(2, 1.0, candidates(3)).allowed) == [0, 2]
    away = policy.decide(1, 2.0, candidates(3, order=[0, 2]))
    assert (sorted(away.allowed), away.branch) == ([0, 2], "occupied_miss")
    policy.commit(1, 2, 2.0)
    assert list(policy.decide(1, 3.0, candidates(3)).allowed) == [1]
    policy.tick(101.0)
    assert list(policy.decide(1, 101.0, candidates(3)).allowed) == [1]
    policy.tick(102.0)
    assert policy.decide(1, 102.0, candidates(3)).branch == "vacant"


def test_one_worker_more_moves_most_keys_or_few() -> None:
    keys: list[str | None] = [f"user {i}" for i in range(300)]
    moved = {}
    for name in ("sglang-consistent-hashing", "smg-consistent-hashing"):
        policy = make_policy(name, content_of(300, keys=keys), 5)
        before, after = (
            [policy.decide(i, 0.0, candidates(5, order=order)).allowed[0] for i in range(300)] for order in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
        )
        assert len(set(before)) == 4
        moved[name] = sum(a != b for a, b in zip(before, after, strict=True))
        assert name == "sglang-consistent-hashing" or all(a == b or b == 4 for a, b in zip(before, after, strict=True))
    assert moved["smg-consistent-hashing"] < 100 < 200 < moved["sglang-consistent-hashing"]


def test_equal_beginnings_go_together_until_their_worker_is_full() -> None:
    w = workload_of([[(7, 0, 300), (i, 0, 20)] for i in range(6)] + [[(50 + i, 0, 300)] for i in range(40)], [])
    policy = make_policy("smg-prefix-hash", Content(w), 4)
    owners = {tuple(policy.decide(i, 0.0, candidates(4)).allowed) for i in range(6)}
    ((owner,),) = owners
    assert len({tuple(policy.decide(i, 0.0, candidates(4)).allowed) for i in range(6, 46)}) == 4
    loads = [0, 0, 0, 0]
    loads[owner] = 20
    full = policy.decide(0, 0.0, candidates(4, loads))
    assert full.branch == "load_balance_walk"
    assert list(full.allowed) == [next(w for w in range(4) if w != owner)]
    loads[owner] = 13
    assert list(policy.decide(0, 0.0, candidates(4, loads)).allowed) == [owner]


def test_a_header_is_hashed_in_the_place_of_the_prompt() -> None:
    keys: list[str | None] = ["a", "a", "b", None, None]
    policy = make_policy("smg-prefix-hash", content_of(5, keys=keys), 4)
    owners = [policy.decide(i, 0.0, candidates(4)).allowed[0] for i in range(5)]
    assert owners[0] == owners[1]
    assert len(set(owners)) > 1
