"""What every routing policy must do, whatever its rule: each registered one through the same random days."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.errors import SettingsError
from simkv.fleet.routing.policy import HIGHER, LOWER, METRICS, NEITHER, Candidates, Content, Decision, RoutingPolicy
from simkv.fleet.routing.registry import make_policy, policy_class, policy_names
from simkv.workload.workload import Workload
from tests.fleet.prompts import prompts, strangers

WORKERS = 6
NAMES = policy_names()
KEYS = ["alice", "bob", None, "carol", "dave", None]

every_policy = pytest.mark.parametrize("name", NAMES)


def content(n: int = 60, chars: int = 4, seed: int = 5) -> Content:
    w = prompts(seed, n, longest=60)
    return Content(w, chars, [KEYS[i % len(KEYS)] for i in range(n)])


class Day:
    """A fleet by chance: requests come and end, workers come and go, metrics are read, background work is done."""

    def __init__(self, name: str, seed: int, given: Content | None = None) -> None:
        self.content = given or content()
        self.policy: RoutingPolicy = make_policy(name, self.content, WORKERS)
        self.r, self.now = Random(seed), 0.0
        metrics = np.zeros(WORKERS, METRICS)
        metrics["time"] = np.nan
        self.c = Candidates([], np.zeros(WORKERS, np.int64), metrics)
        self.running: list[tuple[int, int]] = []
        self.taken: list[tuple[int, int]] = []
        for worker in range(3):
            self.join(worker)

    def join(self, worker: int) -> None:
        self.c.inflight[worker] = 0
        self.c.order.append(worker)
        self.policy.add_worker(worker, self.now)

    def leave(self, worker: int) -> None:
        self.c.order.remove(worker)
        self.policy.remove_worker(worker, self.now)
        for req, at in [held for held in self.running if held[1] == worker]:
            self.end(req, at)

    def end(self, req: int, worker: int) -> None:
        self.running.remove((req, worker))
        self.c.inflight[worker] -= 1
        self.policy.finished(req, worker, self.now)

    def decide(self, req: int) -> Decision:
        return self.policy.decide(req, self.now, self.c)

    def route(self, req: int) -> None:
        d = self.decide(req)
        if not d.allowed and not self.content.workload.num_prompt[req]:
            return  # Ray's router fails on an empty prompt
        check(d, self.c)
        worker = int(self.r.choices(list(d.allowed), d.weights)[0])
        self.policy.commit(req, worker, self.now)
        self.c.inflight[worker] += 1
        self.running.append((req, worker))
        self.taken.append((req, worker))
        if self.r.random() < 0.8:
            self.policy.first_token(req, worker, self.now)

    def hour(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.r.random() * 5
            what, worker = self.r.random(), self.r.randrange(WORKERS)
            if what < 0.08 and worker not in self.c.order:
                self.join(worker)
            elif what < 0.14 and worker in self.c.order and len(self.c.order) > 1:
                self.leave(worker)
            elif what < 0.4 and self.running:
                self.end(*self.r.choice(self.running))
            elif what < 0.5:
                usage = self.r.random()
                self.c.metrics[worker] = (self.now, 3, self.r.randrange(5), usage, self.r.randrange(9000), 500, 16)
            elif what < 0.55:
                self.policy.tick(self.now)
            else:
                self.route(self.r.randrange(len(self.content.workload)))


def check(d: Decision, c: Candidates) -> None:
    """A decision is one that a caller can use."""
    allowed = [int(w) for w in d.allowed]
    assert allowed
    assert len(set(allowed)) == len(allowed)
    assert set(allowed) <= set(c.order)
    assert d.branch
    assert 0 <= d.matched <= d.total or d.total == 0 == d.matched
    assert d.prefers in (LOWER, HIGHER, NEITHER)
    if d.scores is not None:
        assert d.scores.shape == (WORKERS,)
        assert np.isnan(np.delete(d.scores, c.order)).all()
    if d.weights is not None:
        assert len(d.weights) == len(allowed)
        assert all(weight > 0 for weight in d.weights)


@every_policy
@pytest.mark.parametrize("seed", range(3))
def test_long_days_with_workers_coming_and_going(name: str, seed: int) -> None:
    day = Day(name, seed)
    day.hour(500)
    assert len(day.taken) > 150


@every_policy
def test_the_same_seed_makes_the_same_day(name: str) -> None:
    days = [Day(name, 11), Day(name, 11)]
    for day in days:
        day.hour(300)
    assert days[0].taken == days[1].taken


@every_policy
def test_a_single_worker_gets_everything(name: str) -> None:
    day = Day(name, 2)
    day.leave(0)
    day.leave(2)
    for req in range(20):
        assert list(day.decide(req).allowed) == [1]
        day.route(req)


@every_policy
def test_a_worker_that_left_gets_nothing(name: str) -> None:
    day = Day(name, 4)
    for req in range(30):
        day.route(req)
    day.leave(1)
    for req in range(30):
        assert 1 not in day.decide(req).allowed
        day.route(req)


@every_policy
def test_a_worker_that_joins_gets_some_of_what_is_new(name: str) -> None:
    """The others are busy, the prompts have never been seen, nor have their senders."""
    n = 200
    day = Day(name, 4, Content(strangers(n, 50), 4, [f"user {i}" for i in range(n)]))
    for req in range(50):
        day.route(req)
    day.join(4)
    day.c.inflight[[0, 1, 2]] += 1000
    taken = {int(w) for req in range(50, n) for w in day.decide(req).allowed if not day.route(req)}
    assert 4 in taken


@every_policy
def test_asking_twice_gives_the_same_answer(name: str) -> None:
    day = Day(name, 8)
    day.hour(200)
    for req in range(30):
        first, second = day.decide(req), day.decide(req)
        assert (list(first.allowed), first.branch, first.matched) == (list(second.allowed), second.branch, second.matched)
        assert first.scores is second.scores is None or np.array_equal(first.scores, second.scores, equal_nan=True)  # type: ignore[arg-type]


@every_policy
@pytest.mark.parametrize("chars", [1, 3, 16, 200])
def test_any_number_of_characters_per_token(name: str, chars: int) -> None:
    day = Day(name, 3, content(30, chars))
    day.hour(100)


@every_policy
def test_prompts_without_content_and_of_one_unit(name: str) -> None:
    w = prompts(1, 12, longest=2)
    assert 0 in w.num_prompt
    day = Day(name, 3, Content(w, 4))
    day.hour(200)


@every_policy
def test_names_product_and_settings(name: str) -> None:
    cls = policy_class(name)
    assert cls.name == name
    assert cls.product
    assert cls.__doc__
    plain = cls.Settings().to_mapping()
    assert cls.Settings.from_mapping(plain) == cls.Settings()
    with pytest.raises(SettingsError):
        make_policy(name, content(2), 2, {"no_such_setting": 1})


@every_policy
def test_it_says_how_often_it_works_in_the_background(name: str) -> None:
    interval = make_policy(name, content(2), 2).interval
    assert interval is None or interval > 0


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SettingsError, match="round-robin"):
        make_policy("luck", content(2), 2)


def test_workloads_are_only_read() -> None:
    """Policies share one workload: none of them writes to it."""
    given = content()
    before: Any = {k: v.copy() for k, v in vars(given.workload).items() if isinstance(v, np.ndarray)}
    for name in NAMES:
        Day(name, 1, given).hour(50)
    w: Workload = given.workload
    assert all(np.array_equal(before[k], getattr(w, k)) for k in before)
