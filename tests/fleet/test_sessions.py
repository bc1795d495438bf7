"""Rules that look at sessions or at nothing: what moves when a worker joins, who gets requests without a key, exact chances."""

from __future__ import annotations

from hashlib import md5
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.fleet.routing.addresses import worker_url
from simkv.fleet.routing.policy import METRICS, Candidates, Content, RoutingPolicy
from simkv.fleet.routing.production_stack_rates import RequestRates
from simkv.fleet.routing.registry import make_policy
from simkv.fleet.routing.session import nginx_points
from tests.fleet.prompts import prompts


def candidates(order: list[int], inflight: list[int]) -> Candidates:
    return Candidates(order, np.array(inflight, np.int64), np.zeros(len(inflight), METRICS))


def sessions(names: list[str | None]) -> Content:
    return Content(prompts(0, len(names)), 4, names)


def target(policy: RoutingPolicy, req: int, order: list[int]) -> int:
    (worker,) = policy.decide(req, 0.0, candidates(order, [0] * policy.workers)).allowed
    return worker


@pytest.mark.parametrize(("name", "moved", "within"), [("session-hash", 0.8, 0.02), ("session-ring", 0.2, 0.05)])
def test_sessions_that_move_when_a_fifth_worker_joins(name: str, moved: float, within: float) -> None:
    """P-ROU-08: 10,000 sessions, 4 replicas and then 5."""
    content = sessions([f"session-{i}" for i in range(10_000)])
    policy = make_policy(name, content, 5)
    before = [target(policy, i, [0, 1, 2, 3]) for i in range(10_000)]
    after = [target(policy, i, [0, 1, 2, 3, 4]) for i in range(10_000)]
    share = sum(a != b for a, b in zip(before, after, strict=True)) / 10_000
    assert share == pytest.approx(moved, abs=within)
    if name == "session-ring":
        assert all(a == b or b == 4 for a, b in zip(before, after, strict=True))
        assert [target(policy, i, [0, 1, 2, 3]) for i in range(10_000)] == before


def test_nginx_hash_is_fifteen_bits_of_the_crc_in_candidate_order() -> None:
    content = sessions(["alice", "bob"])
    policy = make_policy("session-hash", content, 7)
    order = [6, 2, 5, 0, 1, 3, 4]
    for i, name in enumerate(("alice", "bob")):
        assert target(policy, i, order) == order[(crc32(name.encode()) // 65536 % 32768) % 7]


def test_nginx_ring_chains_the_crc_of_host_port_and_the_point_before() -> None:
    assert worker_url(0) == "http://10.0.0.1:8000"
    assert worker_url(255) == "http://10.0.1.0:8000"
    points = nginx_points(worker_url(0))
    assert len(points) == len(set(points)) == 160
    assert points[0] == crc32(b"10.0.0.1\x008000\0\0\0\0")
    for before, point in pairwise(points):
        assert point == crc32(b"10.0.0.1\x008000" + before.to_bytes(4, "little"))
    content = sessions([f"user {i}" for i in range(300)])
    policy = make_policy("session-ring", content, 3)
    ring = sorted((point, w) for w in (0, 2) for point in nginx_points(worker_url(w)))
    for i in range(300):
        hashed = crc32(f"user {i}".encode())
        assert target(policy, i, [2, 0]) == next((w for point, w in ring if point >= hashed), ring[0][1])


@pytest.mark.parametrize("name", ["session-hash", "session-ring"])
def test_without_a_key_round_robin_as_nginx_or_random_as_envoy(name: str) -> None:
    content = sessions([None, "", "somebody", None])
    policy = make_policy(name, content, 3)
    got = []
    for req in (0, 1, 2, 3, 0, 1):
        got.append(target(policy, req, [2, 0, 1]))
        policy.commit(req, got[-1], 0.0)
    assert [w for req, w in zip((0, 1, 2, 3, 0, 1), got, strict=True) if req != 2] == [2, 0, 1, 2, 0]
    envoy = make_policy(name, content, 3, {"without_key": "random"})
    assert list(envoy.decide(0, 0.0, candidates([2, 0, 1], [0, 0, 0])).allowed) == [2, 0, 1]
    with pytest.raises(SettingsError):
        make_policy(name, content, 3, {"without_key": "luck"})


def test_production_stack_session_ring_is_md5_strictly_above() -> None:
    content = sessions([f"user-{i}" for i in range(200)])
    policy = make_policy("production-stack-session", content, 3)
    ring = sorted((int(md5(f"{worker_url(w)}-{i}".encode()).hexdigest(), 16), w) for w in range(3) for i in range(160))
    for i in range(200):
        hashed = int(md5(f"user-{i}".encode()).hexdigest(), 16)
        assert target(policy, i, [0, 1, 2]) == next((w for point, w in ring if point > hashed), ring[0][1])


def test_production_stack_without_a_key_counts_requests_of_the_last_minute() -> None:
    policy = make_policy("production-stack-session", sessions([None]), 3)
    c = candidates([1, 0, 2], [0, 0, 0])
    got = []
    for now in (0.0, 1.0, 2.0, 3.0, 61.0, 61.5):
        d = policy.decide(0, now, c)
        got.append((list(d.allowed), d.branch))
        policy.commit(0, d.allowed[0], now)
    # Then the first of the lowest: at 61 s workers 1 and 0 have one request left each, at 61.5 s worker 0 has none.
    assert got[:4] == [([1], "no statistics"), ([0], "no statistics"), ([2], "no statistics"), ([1], "lowest qps")]
    assert got[4:] == [([1], "lowest qps"), ([0], "lowest qps")]


def test_rates_are_requests_of_the_window_divided_by_its_length() -> None:
    rates = RequestRates(2, 10.0)
    assert rates.qps(0, 5.0) is None
    for at in (0.0, 1.0, 1.0, 9.0):
        rates.on_new_request(0, at)
    assert [rates.qps(0, now) for now in (10.0, 11.0, 11.5, 19.0, 19.5)] == [0.4, 0.3, 0.1, 0.1, 0.0]
    assert rates.qps(1, 11.0) is None


def test_production_stack_round_robin_counts_for_each_set_of_endpoints() -> None:
    policy = make_policy("production-stack-roundrobin", sessions([None]), 4)
    got = []
    for order in ([0, 1, 2], [2, 0, 1], [0, 1], [0, 1, 2], [3, 0, 1, 2], [1, 0], [0, 1, 2]):
        got.append(target(policy, 0, order))
        policy.commit(0, got[-1], 0.0)
    assert got == [0, 1, 0, 2, 0, 1, 0]


@quick(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_chances_of_two_choices_are_those_of_all_pairs(loads: list[int], r: object) -> None:
    n = len(loads)
    policy = make_policy("power-of-two", sessions([None]), n)
    d = policy.decide(0, 0.0, candidates(list(range(n)), loads))
    chances = [0.0] * n
    for a in range(n):
        for b in range(n):
            if a != b:  # drawn in this order; the first wins a tie
                chances[a if loads[a] <= loads[b] else b] += 1 / (n * (n - 1))
    if n == 1:
        chances = [1.0]
    weights = d.weights if d.weights is not None else [1.0]
    assert dict(zip(d.allowed, weights, strict=True)) == pytest.approx({w: c for w, c in enumerate(chances) if c})
    assert sum(weights) == pytest.approx(1.0)
