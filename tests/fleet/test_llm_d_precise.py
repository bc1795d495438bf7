"""llm-d's precise prefix cache against its rule in plain Python."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.fleet.routing.policy import METRICS, Candidates, Content, KVEvents
from simkv.fleet.routing.registry import make_policy
from tests.fleet.test_dynamo_kv import BLOCK, requests


@pytest.mark.parametrize("workers", [1, 4, 24])
@pytest.mark.parametrize("speculative", [False, True])
def test_scores_are_those_of_the_rule(workers: int, speculative: bool) -> None:
    r = Random(f"{workers} {speculative}")
    w = requests(r, 400)
    settings: dict[str, Any] = {"blockSize": BLOCK, "podCacheSize": 6, "speculativeIndexing": speculative, "speculativeTTL": 3.0}
    policy: Any = make_policy("llm-d-precise-prefix", Content(w, 1), workers, settings)
    of = [policy.keys.of(i).tolist() for i in range(len(w))]
    pods: dict[int, list[int]] = {}  # block -> pods that have it, the latest last
    guessed: list[dict[int, float]] = [{} for _ in range(workers)]
    c = Candidates([], np.zeros(workers, np.int64), np.zeros(workers, METRICS))
    for worker in r.sample(range(workers), workers):
        policy.add_worker(worker, 0.0)
        c.order.append(worker)
    now, hits, forgotten = 0.0, 0, 0
    for req, blocks in enumerate(of):
        now += r.random()
        for worker in range(workers):
            c.metrics[worker]["waiting"], c.metrics[worker]["kv_usage"] = r.choice([0, 1, 5]), r.choice([0.0, 0.25, 0.9])
        waiting = {worker: int(c.metrics[worker]["waiting"]) for worker in c.order}
        low, high = min(waiting.values()), max(waiting.values())
        sums = {}
        for worker in c.order:
            known = [worker in pods.get(key, []) for key in blocks]
            guess = [guessed[worker].get(key, -1.0) > now for key in blocks]
            n = max([*known, False].index(False), [*guess, False].index(False))
            hits += n > 0
            queue = (high - waiting[worker]) / (high - low) if high > low else 1.0
            prefix = n / len(blocks) if blocks else 0.0
            sums[worker] = 2 * prefix + (1 - float(c.metrics[worker]["kv_usage"])) + queue
        decision = policy.decide(req, now, c)
        assert {worker: decision.scores[worker] for worker in c.order} == pytest.approx(sums)
        best = max(decision.scores[worker] for worker in c.order)
        assert sorted(decision.allowed) == [worker for worker in sorted(c.order) if decision.scores[worker] == best]
        worker = r.choice(list(decision.allowed))
        policy.commit(req, worker, now)
        if speculative:
            guessed[worker] |= dict.fromkeys(blocks, now + 3.0)
        for holder in {worker, r.choice(c.order)}:
            kept = blocks[: r.randrange(len(blocks) + 1)]
            policy.kv_events(holder, KVEvents(np.ones(len(kept), np.uint8), np.array(kept, np.uint64), BLOCK))
            for key in kept:
                mine = [*(p for p in pods.get(key, []) if p != holder), holder]
                forgotten += len(mine) > 6
                pods[key] = mine[-6:]
        loser = r.choice(c.order)
        chain = of[r.randrange(req + 1)]
        keep = max(len(chain) - r.randrange(4), 0)  # what follows goes, and all that continues it
        below = {key for other in of[: req + 1] if other[:keep] == chain[:keep] and keep < len(chain) for key in other[keep:]}
        gone = [key for key in below if loser in pods.get(key, [])]
        policy.kv_events(loser, KVEvents(np.zeros(len(gone), np.uint8), np.array(gone, np.uint64), BLOCK))
        for key in gone:
            pods[key].remove(loser)
        if r.random() < 0.03 and len(c.order) > 1:
            lost = c.order.pop()
            policy.remove_worker(lost, now)
            for holders in pods.values():
                if lost in holders:
                    holders.remove(lost)
            guessed[lost] = {}
            c.order.append(lost)
            policy.add_worker(lost, now)
    assert hits > 60
    assert (forgotten > 0) == (workers > 6)
