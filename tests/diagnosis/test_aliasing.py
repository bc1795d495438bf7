"""When dealing requests in turn is as good as affinity, and when it is not."""

from __future__ import annotations

from math import gcd
from random import Random
from typing import Any

import pytest

from simkv.diagnosis.aliasing import aliasing_note
from simkv.workload.workload import Workload
from tests.engine.hand import request, shared, workload


def dealt(order: list[int], **more: Any) -> Workload:
    """One request for each entry, which says its group."""
    requests = [
        request(f"r{i}", [shared(40, 1 + g), shared(3, 100 + i)], arrive=i, **{k: v(g) for k, v in more.items()})
        for i, g in enumerate(order)
    ]
    return workload(requests)


@pytest.mark.parametrize(
    ("groups", "replicas", "warned"),
    [
        (4, 4, True),
        (8, 4, True),
        (2, 4, True),
        (6, 4, True),
        (2, 2, True),
        (6, 3, True),
        (3, 4, False),
        (5, 4, False),
        (5, 8, False),
        (4, 1, False),
    ],
)
def test_the_number_of_groups_fits_the_number_of_replicas(groups: int, replicas: int, warned: bool) -> None:
    note = aliasing_note(dealt(list(range(groups)) * 20), replicas)
    assert (note is not None) == warned
    if note is not None:
        assert f"{groups} prefixes" in note
        assert f"{replicas} replicas" in note
        assert f"each comes to {replicas / gcd(groups, replicas):.1f} of them" in note
        assert "shuffle the arrivals" in note


def test_shuffled_or_one_after_the_other_is_no_artefact() -> None:
    order = list(range(4)) * 20
    Random(4).shuffle(order)
    assert aliasing_note(dealt(order), 4) is None
    assert aliasing_note(dealt(sorted(order)), 4) is None
    assert aliasing_note(dealt([0] * 80), 4) is None
    assert aliasing_note(dealt([0, 1]), 2) is None


def test_groups_by_session_behind_a_common_beginning() -> None:
    requests = [request(f"r{i}", [shared(40), shared(3, 100 + i)], arrive=i, session=f"s{i % 3}") for i in range(60)]
    note = aliasing_note(workload(requests), 3)
    assert note is not None
    assert "3 sessions" in note


def test_written_out_tokens() -> None:
    requests = [request(f"r{i}", [[i % 2 + 1] * 20, [i + 5]], arrive=i) for i in range(40)]
    assert aliasing_note(workload(requests), 2) is not None
    assert aliasing_note(workload(requests), 3) is None


def test_a_closed_loop_is_not_judged() -> None:
    """Who comes next is known when the answer before has come, not from the order of the file."""
    requests = [request(f"r{i}", [shared(40, 1 + i % 2)], arrive=0, **({"after": f"r{i - 2}"} if i > 1 else {})) for i in range(40)]
    assert aliasing_note(workload(requests), 2) is None
