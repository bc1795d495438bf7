"""Dynamo's policy against its rule in a few lines of plain Python, over random days; the recordings stand in tests/golden."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.fleet.kv.prompt_tree import PromptTree
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.routing.dynamo_kv import DynamoKv
from simkv.fleet.routing.policy import METRICS, Candidates, Content, KVEvents
from simkv.fleet.routing.registry import make_policy
from simkv.workload.workload import RUN, Workload

BLOCK = 4
VARIANTS: list[dict[str, Any]] = [
    {},
    {"overlap_score_credit": 0.5, "overlap_score_credit_decay": 1.0},
    {"prefill_load_scale": 0.3, "decode_active_request_weight": 2.0},
    {"router_track_prefill_tokens": False},
    {"overlap_score_weight": 0.0},
    {"use_kv_events": False, "router_ttl_secs": 3.0},
    {"router_temperature": 0.7},
]


def requests(r: Random, n: int) -> Workload:
    """Prompts that continue each other and then differ; lengths are no multiples of a block."""
    runs: list[list[tuple[int, int, int]]] = []
    for i in range(n):
        start = r.choice(runs)[: r.randrange(1, 4)] if runs and r.random() < 0.7 else []
        runs.append([*start, (i, 0, r.randrange(1, 40))])
    counts = np.array([sum(run[2] for run in one) for one in runs], np.int32)
    first = np.concatenate([[0], np.cumsum([len(one) for one in runs])])
    flat = np.array([run for one in runs for run in one], RUN)
    return Workload("day", "test", np.zeros(n), counts, np.zeros(n, np.int32), first, flat)


class Reference:
    """The rule, block by block."""

    def __init__(self, w: Workload, workers: int, s: Any) -> None:
        self.s, self.tokens, keys = s, w.num_prompt.tolist(), RequestKeys(w, BLOCK)
        self.blocks = [keys.of(i).tolist() for i in range(len(w))]
        self.cached: list[dict[int, float]] = [{} for _ in range(workers)]
        self.active: list[dict[int, int]] = [{} for _ in range(workers)]

    def overlap(self, req: int, worker: int, now: float) -> int:
        mine = self.cached[worker]
        return next((n for n, key in enumerate(self.blocks[req]) if mine.get(key, -math.inf) <= now), len(self.blocks[req]))

    def held(self, worker: int) -> set[int]:
        return {key for req in self.active[worker] for key in self.blocks[req]}

    def cost(self, req: int, worker: int, order: list[int], now: float) -> float:
        s, tokens = self.s, self.tokens[req]
        load = {w: sum(self.active[w].values()) for w in order}
        decode = len(self.held(worker) | set(self.blocks[req]))
        weight = s.decode_active_request_weight * len(self.active[worker])
        credit = 0.0 if s.overlap_score_weight == 0 else s.overlap_score_credit
        if s.overlap_score_credit_decay and s.router_track_prefill_tokens:
            excess = (load[worker] - min(load.values())) / BLOCK
            credit /= 1 + s.overlap_score_credit_decay * excess / math.ceil(tokens / BLOCK)
        saved = credit * self.overlap(req, worker, now)
        if not s.router_track_prefill_tokens:
            return max(0.0, decode - saved) + weight
        scale = s.prefill_load_scale if s.overlap_score_weight is None else s.overlap_score_weight
        return float(scale * max(0.0, (load[worker] + tokens) / BLOCK - saved) + decode + weight)

    def reserve(self, req: int, worker: int, now: float) -> None:
        missing = max(self.tokens[req] - BLOCK * self.overlap(req, worker, now), 0)
        self.active[worker][req] = missing if self.s.router_track_prefill_tokens else 0
        if not self.s.use_kv_events:
            self.cached[worker] |= dict.fromkeys(self.blocks[req], now + self.s.router_ttl_secs)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("workers", [1, 3, 70])
def test_costs_are_those_of_the_rule(variant: int, workers: int) -> None:
    r = Random(f"{variant} {workers}")
    w = requests(r, 300)
    policy = make_policy("dynamo-kv", Content(w, 1), workers, {"block_size": BLOCK, **VARIANTS[variant]})
    reference = Reference(w, workers, policy.settings)
    c = Candidates([], np.zeros(workers, np.int64), np.zeros(workers, METRICS))
    under_way: dict[int, int] = {}
    for worker in r.sample(range(workers), workers):
        policy.add_worker(worker, 0.0)
        c.order.append(worker)
    now, hits = 0.0, 0
    for req in range(len(w)):
        now += r.random()
        decision = policy.decide(req, now, c)
        costs = {worker: reference.cost(req, worker, c.order, now) for worker in c.order}
        assert decision.scores is not None
        assert {worker: decision.scores[worker] for worker in c.order} == pytest.approx(costs, abs=1e-9)
        if decision.weights is None:
            assert sorted(decision.allowed) == [x for x in sorted(c.order) if costs[x] <= min(costs.values()) + 1e-12]
        longest = max(reference.overlap(req, worker, now) for worker in c.order)
        assert decision.matched == BLOCK * longest
        hits += longest > 0
        worker = r.choice(list(decision.allowed))
        policy.commit(req, worker, now)
        reference.reserve(req, worker, now)
        under_way[req] = worker
        if policy.settings.use_kv_events:
            kept = r.randrange(len(reference.blocks[req]) + 1)
            keys = np.array(reference.blocks[req][:kept], np.uint64)
            policy.kv_events(worker, KVEvents(np.ones(kept, np.uint8), keys, BLOCK))
            reference.cached[worker] |= dict.fromkeys(reference.blocks[req][:kept], math.inf)
        for other in list(under_way):
            if (roll := r.random()) < 0.1:
                policy.first_token(other, under_way[other], now)
                reference.active[under_way[other]][other] = 0
            elif roll < 0.25:
                gone = under_way.pop(other)
                policy.finished(other, gone, now)
                del reference.active[gone][other]
        if r.random() < 0.05 and len(c.order) > 1:
            lost = c.order.pop(r.randrange(len(c.order)))
            policy.remove_worker(lost, now)
            reference.active[lost], reference.cached[lost] = {}, {}
            under_way = {a: b for a, b in under_way.items() if b != lost}
            if r.random() < 0.7:
                policy.add_worker(lost, now)
                c.order.append(lost)
    assert hits > 30


def test_temperature_draws_by_cost() -> None:
    w = requests(Random(1), 3)
    policy = make_policy("dynamo-kv", Content(w, 1), 3, {"block_size": BLOCK, "router_temperature": 0.5})
    c = Candidates([0, 1, 2], np.zeros(3, np.int64), np.zeros(3, METRICS))
    assert policy.decide(0, 0.0, c).weights == [1.0, 1.0, 1.0]
    policy.commit(0, 1, 0.0)
    decision = policy.decide(0, 0.0, c)
    assert decision.weights == [1.0, pytest.approx(math.exp(-2)), 1.0]


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 2), st.booleans()), max_size=80))
def test_blocks_under_way_are_counted_once(steps: list[tuple[int, int, bool]]) -> None:
    w = requests(Random(4), 30)
    keys = RequestKeys(w, BLOCK)
    tree = PromptTree(keys, 30, 3, False)
    of = [set(keys.of(i).tolist()) for i in range(30)]
    where: dict[int, int] = {}
    for req, worker, goes in steps:
        if goes:
            tree.reserve(req, worker, 5, len(of[req]), 0.0, 0.0)
            where[req] = worker
        else:
            tree.finish(req, 0.0)
            where.pop(req, None)
        for slot in range(3):
            mine = [r for r, at in where.items() if at == slot]
            load = tree.state.workers[slot]
            assert (load.requests, load.prefill, load.units) == (len(mine), 5 * len(mine), len(set().union(*(of[r] for r in mine))))
    if not where:
        assert (tree.state.nodes["blocks"][1 : int(tree.meta.nodes)] == 0).all()


def test_it_grows_and_sweeps() -> None:
    r = Random(9)
    w = requests(r, 6000)
    keys = RequestKeys(w, BLOCK)
    tree = PromptTree(keys, len(w), 2, True)
    for i in range(len(w)):
        n = int(w.num_prompt[i]) // BLOCK
        tree.reserve(i, i % 2, 1, n, float(i), float(i) + 50)
        if i >= 40:
            tree.finish(i - 40, float(i))
    assert len(tree.state.nodes) < 6000
    expected = [set().union(*(keys.of(i).tolist() for i in range(5960, 6000) if i % 2 == slot)) for slot in range(2)]
    assert [int(x.units) for x in tree.state.workers] == [len(x) for x in expected]


@pytest.mark.parametrize("bad", [{"block_size": 0}, {"router_temperature": -1.0}, {"overlap_score_credit": math.inf}])
def test_settings_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        DynamoKv.Settings.from_mapping(bad)
