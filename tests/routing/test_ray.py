"""Ray Serve's prefix-aware router, compiled, against a slow model that keeps strings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.fleet.routers import Routers
from simkv.fleet.routing import make_policy
from simkv.fleet.routing.policy import Content
from simkv.fleet.routing.ray_prefix_aware import EMPTY, IMBALANCED, NOBODY_KNOWN, RayPrefixAware
from simkv.settings.fleet import FleetSettings
from tests.routing.made import WORDS, WORKERS, Fleet, Life, lives, prompts, spelled, workload_of
from tests.routing.reference_ray import PrefixAware


def policy_for(prompts: list[list[tuple[int, int, int]]], chars: int = 1, **values: float | None) -> RayPrefixAware:
    policy = make_policy("ray-prefix-aware", Content(workload_of(prompts, WORDS), chars), WORKERS, values)
    assert isinstance(policy, RayPrefixAware)
    for w in range(WORKERS):
        policy.add_worker(w, 0.0)
    return policy


@settings(max_examples=200, deadline=None)
@given(
    lives(prompts),
    st.sampled_from([None, 0, 1, 2.5]),
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
    st.sampled_from([(0, 0), (6, 3), (15, 5), (15, 15), (5, 15)]),
    st.sampled_from([1, 3]),
)
def test_every_decision(life: Life, imbalanced: float | None, rate: float, sizes: tuple[int, int], same_time: int) -> None:
    """Who may be chosen, what matched and what the tree holds, also when several requests have one time stamp."""
    policy = policy_for(
        life.prompts,
        imbalanced_threshold=imbalanced,
        match_rate_threshold=rate,
        eviction_threshold_chars=sizes[0],
        eviction_target_chars=sizes[1],
    )
    model = PrefixAware(float("inf") if imbalanced is None else imbalanced, rate)
    fleet, req = Fleet(), 0
    for w in fleet.order:
        model.tree.add(w)
    for time, (kind, number) in enumerate(life.events):
        now = float(time // same_time)
        if kind == "route":
            text = "".join(map(chr, spelled(life.prompts[req])))
            decision = policy.decide(req, now, fleet.candidates)
            allowed, branch, matched = model.decide(text, fleet.load)
            assert set(decision.allowed) == allowed
            assert (decision.branch, decision.matched) == (branch, matched)
            worker = sorted(allowed)[number % len(allowed)]
            policy.commit(req, worker, now)
            model.commit(text, worker, now)
            fleet.start(worker)
            req += 1
        elif kind == "finish":
            fleet.finish(number)
        elif kind == "tick":
            policy.tick(now)
            model.tree.evict(*sizes)
        elif kind == "leave" and (gone := fleet.leave(number)) is not None:
            policy.remove_worker(gone, now)
            model.tree.remove(gone)
        elif kind == "join" and (new := fleet.join(number)) is not None:
            policy.add_worker(new, now)
            model.tree.add(new)
        assert {w: int(policy.tree_sizes()[w]) for w in fleet.order} == model.tree.chars


def test_a_share_of_just_the_threshold_is_a_match() -> None:
    policy = policy_for([[(0, 0, 10)], [(0, 0, 1), (1, 0, 9)], [(0, 0, 1), (2, 0, 10)]])
    policy.commit(0, 2, 0.0)
    fleet = Fleet()
    assert list(policy.decide(1, 1.0, fleet.candidates).allowed) == [2]
    assert list(policy.decide(2, 1.0, fleet.candidates).allowed) == [0, 1, 3]


def test_only_nodes_of_candidates_match() -> None:
    """A replica that is in the tree and no candidate lends nobody its prefix."""
    policy = policy_for([[(0, 0, 4)], [(0, 0, 8)]], match_rate_threshold=0.5)
    policy.commit(0, 1, 0.0)
    policy.commit(1, 0, 1.0)
    fleet = Fleet()
    assert policy.match(1, fleet.order) == (8, [0])
    fleet.order.remove(0)
    assert policy.match(1, fleet.order) == (4, [1])
    fleet.order.remove(1)
    assert policy.match(1, fleet.order) == (0, [2, 3])


def test_an_empty_prompt_has_no_answer() -> None:
    decision = policy_for([[(0, 0, 0)]]).decide(0, 0.0, Fleet().candidates)
    assert (list(decision.allowed), decision.branch) == ([], EMPTY)


def test_two_choices_have_their_chances() -> None:
    """Loads 0, 0, 1, 3: of six pairs the idle ones win all against the busy ones and half of their own."""
    policy = policy_for([[(0, 0, 5)]], imbalanced_threshold=2)
    fleet = Fleet()
    fleet.candidates.inflight[:] = 0, 0, 1, 3
    decision = policy.decide(0, 0.0, fleet.candidates)
    assert decision.branch == IMBALANCED
    assert decision.weights is not None
    assert dict(zip(decision.allowed, decision.weights, strict=True)) == pytest.approx({0: 2.5 / 6, 1: 2.5 / 6, 2: 1 / 6})


def test_nobody_known() -> None:
    """Candidates that the tree does not know yet, and a threshold of 0: two choices."""
    policy = make_policy("ray-prefix-aware", Content(workload_of([[(0, 0, 5)]], [])), WORKERS, {"match_rate_threshold": 0.0})
    assert policy.decide(0, 0.0, Fleet().candidates).branch == NOBODY_KNOWN
    policy.commit(0, 1, 0.0)
    assert not policy.tree_sizes().any()  # type: ignore[attr-defined]


def test_sizes_are_characters() -> None:
    """A token is 4 characters: 30 of them are above 100 and leave 15, the last request's, below 60."""
    policy = policy_for([[(0, 0, 15)], [(1, 0, 15)]], 4, eviction_threshold_chars=100, eviction_target_chars=60)
    policy.commit(0, 0, 0.0)
    policy.commit(1, 0, 1.0)
    policy.tick(2.0)
    assert policy.tree_sizes()[0] == 15
    assert policy.match(1, [0]) == (15, [0])
    assert policy.match(0, [0])[0] == 0


def test_it_evicts_only_if_told() -> None:
    assert policy_for([[(0, 0, 1)]]).interval is None
    assert policy_for([[(0, 0, 1)]], do_eviction=True).interval == 10.0


def test_all_router_processes_have_one_tree() -> None:
    """The tree is an actor in Ray. Queues are still each process's own, and other routers share nothing."""
    content = Content(workload_of([[(0, 0, 20)]] * 3, []))
    processes = Routers(content, FleetSettings(router="ray-prefix-aware", routers=3), WORKERS, 16)
    for w in range(WORKERS):
        processes.add(w, 0.0)
    first, _, last = processes.processes
    first.policy.commit(0, 2, 0.0)
    assert list(last.policy.decide(1, 1.0, last.candidates).allowed) == [2]
    assert first.inflight is not last.inflight
    processes.remove(2, 2.0)
    assert list(first.policy.decide(1, 3.0, first.candidates).allowed) == [0, 1, 3]
    others = Routers(content, FleetSettings(router="vllm-router-cache-aware", routers=3), WORKERS, 16)
    assert len({id(p.policy) for p in others.processes}) == 3
