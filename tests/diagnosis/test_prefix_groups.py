"""Groups of requests by the prefix that carries their reuse."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.diagnosis.ladder import Ladder, ladder
from simkv.diagnosis.prefix_groups import PrefixGroups, prefix_groups
from simkv.workload.generators import generate
from simkv.workload.workload import Workload, tokens_of
from tests.engine.hand import nothing, request, shared, workload


def grouped(w: Workload, replicas: int = 4, most: int = 24) -> tuple[Ladder, PrefixGroups]:
    placed = (np.arange(len(w)) % replicas).astype(np.int32)
    found = ladder(w, 16, placed, np.arange(len(w)) % 3 * 16)
    return found, prefix_groups(w, found, placed, replicas, most)


@pytest.mark.parametrize("name", ["shared_system_prompt", "growing_tenants", "multi_turn_chat", "few_shot_branching", "open_ended"])
def test_members_share_the_prefix_and_the_figures_add_up(name: str) -> None:
    w = generate(name, requests=200)
    found, groups = grouped(w)
    for g in range(len(groups)):
        members, n = np.flatnonzero(groups.of == g), int(groups.tokens[g])
        assert len(members) == groups.requests[g].sum() > 1
        assert groups.example[g] == members[0]
        assert len({tokens_of(w, int(i))[:n].tobytes() for i in members}) == 1
    inside = groups.of >= 0
    for total, of in ((groups.ceiling, found.of_ceiling), (groups.routed, found.of_routed), (groups.delivered, found.of_delivered)):
        assert total.sum() == of[inside].sum()
    assert groups.requests.sum(axis=0).tolist() == np.bincount(np.arange(200)[inside] % 4, minlength=4).tolist()
    heavy = groups.ceiling.sum(axis=1)
    assert (np.diff(heavy) <= 0).all()


def test_a_system_prompt_of_all_becomes_a_group_per_document_behind_it() -> None:
    everybody = shared(32)
    prompts = [[everybody, {"seed": 10 + i % 3, "n": 160}, {"seed": 500 + i, "n": 20}] for i in range(12)]
    prompts += [[everybody, {"seed": 600 + i, "n": 50}] for i in range(2)]
    w = workload([request(f"r{i}", p, 1, i) for i, p in enumerate(prompts)], max_model_len=300)
    _, groups = grouped(w, 2)
    assert groups.tokens.tolist() == [192, 192, 192, 32]
    assert groups.requests.tolist() == [[2, 2], [2, 2], [2, 2], [1, 1]]
    assert groups.rest.tolist() == [False, False, False, True]
    assert groups.names(w) == ["as r1", "as r2", "as r0", "all others that begin as r12"]
    assert grouped(w, 2, most=2)[1].requests.sum() == 14


def test_a_growing_chat_stays_one_group_and_has_its_name() -> None:
    w = generate("multi_turn_chat", requests=60, tenants=1, system_tokens=0)
    _, groups = grouped(w)
    assert len(groups)
    assert w.session is not None
    for g in range(len(groups)):
        assert len(set(w.session[groups.of == g].tolist())) == 1
    assert all(name.startswith("session ") for name in groups.names(w))


def test_nothing_in_common_is_no_group() -> None:
    assert len(grouped(workload([request("a", 40), request("b", 40)]))[1]) == 0
    assert len(grouped(nothing())[1]) == 0
