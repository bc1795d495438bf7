"""Policies that index prompts by chunks, against their plain models: every decision, over random prompts, workers and metrics."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from simkv.fleet.routing.chunk_trie import NODES
from simkv.fleet.routing.policy import METRICS, Candidates, Content, RoutingPolicy
from simkv.fleet.routing.registry import make_policy
from simkv.workload.workload import Workload
from tests.fleet.prompts import Units, prompts, units_of
from tests.fleet.reference_chunks import Aibrix, LlmD, ProductionStack

seeds = st.integers(0, 1 << 30)


class Fleet:
    """A few workers that come, go and are busy, all by chance; the policy is told, and so is whoever looks at ``candidates``."""

    def __init__(self, policy: RoutingPolicy, workers: int, r: Random) -> None:
        self.policy, self.r, self.now = policy, r, 0.0
        metrics = np.zeros(workers, METRICS)
        metrics["time"] = np.nan
        self.candidates = Candidates([], np.zeros(workers, np.int64), metrics)
        for worker in range(workers):
            self.join(worker)

    def join(self, worker: int) -> None:
        self.candidates.order.append(worker)
        self.policy.add_worker(worker, self.now)

    def leave(self, worker: int) -> None:
        self.candidates.order.remove(worker)
        self.policy.remove_worker(worker, self.now)

    def something_happens(self) -> None:
        c, r = self.candidates, self.r
        self.now += r.random() * 20
        worker = r.randrange(len(c.inflight))
        what = r.random()
        if what < 0.05 and worker in c.order and len(c.order) > 1:
            self.leave(worker)
        elif what < 0.15 and worker not in c.order:
            self.join(worker)
        elif what < 0.5:
            c.inflight[worker] = r.choice([0, 1, 2, 3, 9, 12, 40])
            c.metrics[worker] = (self.now, 1, r.randrange(4), r.choice([0.0, 0.25, 0.5, 1.0]), 10, r.choice([3, 7, 30]), 4)


def root_of(workload: Workload, req: int) -> tuple[int, int]:
    salt = int(workload.salt[req]) if workload.salt is not None else 0
    return salt, int(workload.lora[req]) if workload.lora is not None else -1


def lots(workload: Workload, seed: int, times: int) -> list[tuple[int, Units]]:
    r = Random(seed)
    return [(i, units_of(workload, i)) for i in (r.randrange(len(workload)) for _ in range(times))]


@quick(deadline=None, max_examples=60)
@given(seeds, st.sampled_from([1, 3, 4, 32]), st.sampled_from([0, 128, 300]), st.sampled_from([1, 5, 70]))
def test_production_stack_prefixaware(seed: int, chars: int, min_match: int, workers: int) -> None:
    w = prompts(seed, 12, longest=20 * 128 // chars if chars > 1 else 400)
    policy: Any = make_policy("production-stack-prefixaware", Content(w, chars), workers, {"prefix_min_match_length": min_match})
    model = ProductionStack(128 // chars, min_match)
    fleet = Fleet(policy, workers, Random(seed))
    sent: dict[int, list[float]] = {}
    for req, units in lots(w, seed, 40):
        fleet.something_happens()
        order, now = fleet.candidates.order, fleet.now
        rates = {k: sum(t >= now - 60 for t in times) / 60 for k, times in sent.items()}
        d = policy.decide(req, now, fleet.candidates)
        allowed, matched = model.decide(units, order, rates)
        assert set(d.allowed) == allowed
        assert (d.matched, d.total) == (min(matched * policy.chunk, len(units)), len(units))
        worker = fleet.r.choice(sorted(allowed))
        policy.commit(req, worker, now)
        model.commit(units, worker)
        sent.setdefault(worker, []).append(now)


@quick(deadline=None, max_examples=80)
@given(seeds, st.sampled_from([1, 2, 5]), st.sampled_from([3, 256, 256]), st.sampled_from([True, True, False]), st.booleans())
def test_llm_d(seed: int, block: int, most: int, auto_tune: bool, namespaces: bool) -> None:
    w = prompts(seed, 25, namespaces=namespaces)
    settings = {"autoTune": auto_tune, "blockSizeTokens": block, "maxPrefixBlocksToMatch": most}
    policy: Any = make_policy("llm-d-approx-prefix", Content(w, 4), 5, settings)
    fleet = Fleet(policy, 5, Random(seed))
    if seed % 3:
        for pod in range(5):
            fleet.candidates.metrics[pod] = (0.0, 1, 0, 0.5, 10, fleet.r.choice([3, 7, 20, 40, 70]), 4 if seed % 2 else block)
    model: LlmD | None = None
    for req, units in lots(w, seed + 1, 100):
        fleet.something_happens()
        c = fleet.candidates
        if model is None:
            first = c.metrics[c.order[0]]
            reported_first = auto_tune and not np.isnan(first["time"])
            model = LlmD(int(first["block_size"]) if reported_first else block, most, (2.0, 2.0, 3.0))
        if fleet.r.random() < 0.1:
            policy.tick(fleet.now)
            model.clean_up(set(c.order))
        root = root_of(w, req)
        d = policy.decide(req, fleet.now, c)
        allowed, sums = model.decide(units, root, c)
        assert set(d.allowed) == allowed
        assert d.scores is not None
        assert {k: float(d.scores[k]) for k in c.order} == sums
        assert np.isnan(np.delete(d.scores, c.order)).all()
        pod = fleet.r.choice(sorted(allowed))
        reported = auto_tune and not np.isnan(c.metrics["time"][pod])
        policy.commit(req, pod, fleet.now)
        model.commit(units, root, pod, int(c.metrics["capacity"][pod]) if reported else 31_250)
        if fleet.r.random() < 0.2:
            for i in range(len(w)):
                policy.decide(i, fleet.now, c)
                known = model.known(model.keys(units_of(w, i), root_of(w, i)))
                assert policy.found.tolist() == [known.get(pod, 0) for pod in range(5)]


@quick(deadline=None, max_examples=80)
@given(
    seeds,
    st.sampled_from([1, 2, 5]),
    st.sampled_from([4, 9, 20, 45, 70, 120, 300]),
    st.sampled_from(["gap", "factor"]),
    st.sampled_from([1, 2, 3, 66]),
)
def test_aibrix(seed: int, block: int, room: int, gate: str, workers: int) -> None:
    w = prompts(seed, 20)
    settings = {"block_size": 4 * block, "block_number": room, "eviction_duration_mins": 2.0, "imbalance_gate": gate}
    policy: Any = make_policy("aibrix-prefix-cache", Content(w, 4), workers, settings)
    model = Aibrix(block, room, 2.0, 1, gate)
    fleet = Fleet(policy, workers, Random(seed))
    for req, units in lots(w, seed + 2, 120):
        fleet.something_happens()
        if fleet.r.random() < 0.3:
            policy.tick(fleet.now)
            model.expire(fleet.now)
        root = root_of(w, req)
        d = policy.decide(req, fleet.now, fleet.candidates)
        allowed, branch = model.decide(units, root, fleet.candidates)
        assert (set(d.allowed), d.branch) == (allowed, branch)
        worker = fleet.r.choice(sorted(allowed))
        policy.commit(req, worker, fleet.now)
        model.commit(units, root, worker, fleet.now)
        assert int(policy.lru.lists["held"][0]) == len(model.store)
        if fleet.r.random() < 0.2:
            idle = Candidates(fleet.candidates.order, np.zeros(workers, np.int64), fleet.candidates.metrics)
            for i in range(len(w)):
                policy.decide(i, fleet.now, idle)
                found = model.known(units_of(w, i), root_of(w, i), set(idle.order))
                assert policy.found.tolist() == [found.get(pod, 0) for pod in range(workers)]


@pytest.mark.parametrize("module", ["production_stack_prefix", "llm_d_approx", "aibrix"])
def test_a_full_trie_is_enlarged(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that begin with room for 8 nodes decide as those that have room for all."""
    name = {"production_stack_prefix": "production-stack-prefixaware", "llm_d_approx": "llm-d-approx-prefix"}.get(
        module, "aibrix-prefix-cache"
    )
    w = prompts(3, 300, longest=400)
    answers = []
    for nodes in (8, 4096):
        monkeypatch.setattr(f"simkv.fleet.routing.{module}.NODES_AT_FIRST", nodes)
        policy: Any = make_policy(name, Content(w, 4), 3)
        fleet = Fleet(policy, 3, Random(0))
        decisions = []
        for req in range(len(w)):
            d = policy.decide(req, 0.0, fleet.candidates)
            decisions.append((list(d.allowed), d.matched))
            policy.commit(req, d.allowed[req % len(d.allowed)], 0.0)
        answers.append(decisions)
        assert 8 < policy.trie.size[NODES] <= len(policy.trie.nodes) < 8192
    assert answers[0] == answers[1]


def test_llm_d_counts_later_blocks_of_a_pod_that_lacks_an_early_one() -> None:
    """Pod 0 has blocks 0 … 2, pod 1's list holds only two: the last ones. Both are counted, pod 1 without a first block."""
    w = prompts(1, 40)
    req = next(i for i in range(40) if w.num_prompt[i] >= 12)
    policy: Any = make_policy("llm-d-approx-prefix", Content(w, 4), 2, {"blockSizeTokens": 4})
    fleet = Fleet(policy, 2, Random(0))
    policy.decide(req, 0.0, fleet.candidates)
    policy.commit(req, 0, 0.0)
    fleet.candidates.metrics[1] = (0.0, 0, 0, 0.0, 0, 2, 0)
    policy.decide(req, 0.0, fleet.candidates)
    policy.commit(req, 1, 0.0)
    blocks = -(-int(w.num_prompt[req]) // 4)
    policy.decide(req, 0.0, fleet.candidates)
    assert policy.found.tolist() == [blocks, blocks]  # its own blocks drove each other out of the list, not out of the table
    other = next(i for i in range(40) if i != req and w.num_prompt[i] >= 8 and units_of(w, i)[0] != units_of(w, req)[0])
    policy.commit(other, 1, 0.0)
    policy.decide(req, 0.0, fleet.candidates)
    assert policy.found.tolist() == [blocks, blocks - 2]
