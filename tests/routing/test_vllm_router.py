"""vllm-router's cache_aware, compiled, against a slow model that keeps strings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.fleet.routing import make_policy
from simkv.fleet.routing.policy import Content
from simkv.fleet.routing.vllm_router_cache_aware import DIGITS, VllmRouterCacheAware, VllmRouterText
from tests.routing.made import WORDS, WORKERS, Fleet, Life, lives, prompts, spelled, workload_of, written_prompts
from tests.routing.reference_vllm_router import CacheAware

HEADER = "tokens"
rules = st.fixed_dictionaries(
    {
        "cache_threshold": st.sampled_from([0.0, 0.3, 0.35, 0.5, 1.0]),
        "balance_abs_threshold": st.sampled_from([0, 1, 2, 64]),
        "balance_rel_threshold": st.sampled_from([1.0, 1.4, 1.5, 2.0]),
    }
)
Rules = dict[str, float]


def follow(life: Life, policy: VllmRouterCacheAware, model: CacheAware, limit: int) -> None:
    """The same events for both; decision, branch, match and sizes agree after each."""
    fleet, req = Fleet(), 0
    for w in fleet.order:
        policy.add_worker(w, 0.0)
        model.tree.add(w)
    for time, (kind, number) in enumerate(life.events):
        now = float(time)
        if kind == "route":
            tokens = spelled(life.prompts[req])
            decision = policy.decide(req, now, fleet.candidates)
            worker, branch, matched = model.decide(tokens, fleet.order, fleet.load)
            assert (list(decision.allowed), decision.branch, decision.matched) == ([worker], branch, matched)
            policy.commit(req, worker, now)
            model.commit(tokens, worker)
            fleet.start(worker)
            req += 1
        elif kind == "finish":
            fleet.finish(number)
        elif kind == "tick":
            policy.tick(now)
            model.tree.evict(limit)
        elif kind == "leave" and (gone := fleet.leave(number)) is not None:
            policy.remove_worker(gone, now)
            model.tree.remove(gone)
        elif kind == "join" and (new := fleet.join(number)) is not None:
            policy.add_worker(new, now)
            model.tree.add(new)
        assert {w: int(policy.tree_sizes()[w]) for w in fleet.order} == model.tree.sizes


@settings(max_examples=150, deadline=None)
@given(lives(prompts), rules, st.sampled_from([0, 4, 9, 1000]))
def test_whole_tokens(life: Life, rule: Rules, limit: int) -> None:
    content = Content(workload_of(life.prompts, WORDS))
    policy = make_policy("vllm-router-cache-aware", content, WORKERS, {**rule, "max_tree_size": limit * DIGITS})
    assert isinstance(policy, VllmRouterCacheAware)
    follow(life, policy, CacheAware(**rule, header="", digits=1), limit)


@settings(max_examples=150, deadline=None)
@given(lives(written_prompts), rules, st.sampled_from([0, 20, 50, 90, 1000]))
def test_digits_of_tokens(life: Life, rule: Rules, limit: int) -> None:
    """An edge may end inside a token; the owner is looked for at the last whole one."""
    texts = [HEADER + "".join(f"{t:08x}" for t in spelled(prompt)) for prompt in life.prompts]
    flat = [ord(c) for text in texts for c in text]
    starts = [sum(map(len, texts[:i])) for i in range(len(texts))]
    content = Content(workload_of([[(-1 - start, 0, len(text))] for start, text in zip(starts, texts, strict=True)], flat), 1)
    policy = VllmRouterText(content, WORKERS, VllmRouterText.Settings.from_mapping({**rule, "max_tree_size": limit}))
    follow(life, policy, CacheAware(**rule), limit)


@pytest.mark.parametrize(
    ("threshold", "same", "matches"), [(0.35, 7, True), (0.3, 6, False), (0.7, 14, True), (0.6, 12, False), (0.95, 19, True)]
)
def test_a_share_of_64_bits_against_a_threshold_of_32(threshold: float, same: int, matches: bool) -> None:
    """What the process does with 20 tokens of which so many match."""
    content = Content(workload_of([[(0, 0, 20)], [(0, 0, same), (1, 0, 20 - same)]], []))
    policy = make_policy("vllm-router-cache-aware", content, 2, {"cache_threshold": threshold})
    fleet = Fleet()
    fleet.order[2:] = []
    policy.commit(0, 0, 0.0)
    fleet.start(0)
    decision = policy.decide(1, 0.0, fleet.candidates)
    assert (decision.matched, decision.total) == (same, 20)
    assert list(decision.allowed) == [0 if matches else 1]


@pytest.mark.parametrize(("rel", "high", "low"), [(1.4, 7, 5), (1.3, 13, 10)])
def test_imbalance_is_computed_in_32_bits(rel: float, high: int, low: int) -> None:
    """5 × 1.4 is 7 there, though 1.4 as a 32-bit number is below 1.4: the process stays balanced."""
    content = Content(workload_of([[(0, 0, 20)]] * 2, []))
    policy = make_policy("vllm-router-cache-aware", content, 2, {"balance_abs_threshold": 1, "balance_rel_threshold": rel})
    fleet = Fleet()
    fleet.order[2:] = []
    policy.commit(0, 0, 0.0)
    fleet.candidates.inflight[:2] = high, low
    assert policy.decide(1, 0.0, fleet.candidates).branch == "cache prefix"
    fleet.candidates.inflight[:2] = high + 1, low
    assert policy.decide(1, 0.0, fleet.candidates).branch == "load_balance"


def test_a_prompt_without_tokens_goes_to_the_least_loaded() -> None:
    content = Content(workload_of([[(0, 0, 0)], [(0, 0, 9)]], []))
    policy = make_policy("vllm-router-cache-aware", content, 2, {})
    fleet = Fleet()
    fleet.order[:] = [1, 0]
    fleet.start(1)
    decision = policy.decide(0, 0.0, fleet.candidates)
    assert (list(decision.allowed), decision.branch, decision.total) == ([0], "no tokens", 0)
    policy.commit(0, 0, 0.0)
    assert not policy.tree_sizes().any()  # type: ignore[attr-defined]


def test_defaults_are_the_command_lines() -> None:
    s = VllmRouterCacheAware.Settings()
    assert s.to_mapping() == {
        "cache_threshold": 0.3,
        "balance_abs_threshold": 64,
        "balance_rel_threshold": 1.5,
        "eviction_interval_secs": 120,
        "max_tree_size": 33_554_432,
    }
