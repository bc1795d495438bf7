"""vllm-router's two policies over sessions, beyond what is recorded of them (tests/golden/routers_more)."""

from __future__ import annotations

import pytest

from simkv.fleet.routing.fbi_hash import fbi_hashes
from simkv.fleet.routing.policy import Content
from simkv.fleet.routing.vllm_router_sessions import VllmRouterConsistentHash, VllmRouterStickyLeastLoaded
from tests.routing.made import WORKERS, Fleet, workload_of

PROMPTS = [[(i % 5, 0, 10)] for i in range(200)]
SESSIONS = [f"user-{i % 40}" for i in range(200)]


def sticky(sessions: list[str | None], **values: float) -> VllmRouterStickyLeastLoaded:
    known = VllmRouterStickyLeastLoaded.Settings
    content = Content(workload_of([[(0, 0, 10)]] * len(sessions), []), session=sessions)
    return VllmRouterStickyLeastLoaded(content, WORKERS, known.from_mapping(values))


def consistent(sessions: list[str | None]) -> VllmRouterConsistentHash:
    return VllmRouterConsistentHash(Content(workload_of(PROMPTS[: len(sessions)], []), session=sessions), WORKERS)


def take(policy: VllmRouterStickyLeastLoaded, req: int, now: float, fleet: Fleet) -> int:
    (worker,) = policy.decide(req, now, fleet.candidates).allowed
    policy.commit(req, worker, now)
    return worker


def test_the_hash_has_fewer_than_2_to_the_23_values_of_64_bits() -> None:
    """Of 12,000 texts some 9 pairs agree (12,000² ÷ 2 ÷ 2²³), of which none would with 64 bits."""
    values = fbi_hashes([f"text {i}" for i in range(12_000)])
    assert 1 <= len(values) - len(set(values)) <= 30
    assert max(values) > 1 << 63
    assert fbi_hashes([]) == []
    assert fbi_hashes(["", "a"]) != fbi_hashes(["a", ""])


def test_a_ring_moves_few_sessions() -> None:
    policy, fleet = consistent(list(SESSIONS)), Fleet()
    before = [policy.decide(i, 0.0, fleet.candidates).allowed[0] for i in range(40)]
    assert set(before) == set(range(WORKERS))
    assert [policy.decide(i + 40, 0.0, fleet.candidates).allowed[0] for i in range(40)] == before
    fleet.order.remove(2)
    after = [policy.decide(i, 0.0, fleet.candidates).allowed[0] for i in range(40)]
    assert [b for a, b in zip(before, after, strict=True) if a != 2] == [a for a in before if a != 2]
    assert 2 not in after


def test_without_a_session_equal_prompts_go_together() -> None:
    policy, fleet = consistent([None] * 200), Fleet()
    seen: dict[int, set[int]] = {}
    for i in range(200):
        seen.setdefault(i % 5, set()).add(policy.decide(i, 0.0, fleet.candidates).allowed[0])
    assert [len(workers) for workers in seen.values()] == [1] * 5
    assert len(set.union(*seen.values())) > 1


def test_a_point_of_two_workers_is_the_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simkv.fleet.routing.vllm_router_sessions.fbi_hashes", lambda texts: [5] * len(texts))
    policy, fleet = consistent(["a"]), Fleet()
    fleet.order[:] = [3, 1, 2, 0]
    assert list(policy.decide(0, 0.0, fleet.candidates).allowed) == [0]


def test_new_sessions_go_where_the_fewest_are_and_stay() -> None:
    policy, fleet = sticky([f"s{i}" for i in range(40)] + [f"s{i}" for i in range(40)]), Fleet()
    first = [take(policy, i, 0.0, fleet) for i in range(40)]
    assert sorted(first) == sorted(list(range(WORKERS)) * 10)
    fleet.candidates.inflight[:] = 100, 0, 0, 0
    assert [take(policy, 40 + i, 1.0, fleet) for i in range(40)] == first
    assert policy.counts == [10] * WORKERS


def test_sessions_of_a_worker_that_left_move_one_by_one() -> None:
    policy, fleet = sticky(["a", "b", "c", "d", "a", "b", "a"]), Fleet()
    homes = [take(policy, i, 0.0, fleet) for i in range(4)]
    fleet.order.remove(homes[0])
    moved = take(policy, 4, 1.0, fleet)
    assert moved != homes[0]
    assert policy.counts[homes[0]] == 0
    assert policy.counts[moved] == 2
    fleet.order.append(homes[0])
    assert take(policy, 5, 2.0, fleet) == homes[1]
    assert take(policy, 6, 2.0, fleet) == moved


def test_sessions_expire_once_a_minute() -> None:
    policy, fleet = sticky(["a", "b", "a", "c", "c", "c"], session_expiration_in_s=100.0), Fleet()
    take(policy, 0, 0.0, fleet)
    take(policy, 1, 50.0, fleet)
    take(policy, 3, 119.0, fleet)
    assert set(policy.sessions) == {"b", "c"}
    take(policy, 4, 178.0, fleet)
    assert set(policy.sessions) == {"b", "c"}
    take(policy, 5, 179.0, fleet)
    assert set(policy.sessions) == {"c"}
    assert sum(policy.counts) == 1


def test_requests_without_a_session_count_for_nothing() -> None:
    policy, fleet = sticky([None] * 20), Fleet()
    assert len({take(policy, i, 0.0, fleet) for i in range(20)}) == 1
    assert policy.counts == [0] * WORKERS
