"""The ladder against an engine that has room for everything, and against token-by-token comparison."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest

from simkv.diagnosis.ladder import ladder
from simkv.diagnosis.shared_prefix import shared_prefixes
from simkv.engine.step_time import linear
from simkv.replay import replay
from simkv.settings import EngineSettings, SglangSettings
from simkv.workload.generators import generate
from simkv.workload.workload import ACTION, IMAGE, Workload, tokens_of
from tests.engine.cases import draw_case
from tests.engine.hand import nothing, request, shared, workload


def one_by_one(w: Workload) -> Workload:
    """The same requests, each alone on its replica."""
    images = w.images.copy()
    images["identifier"] = 100 * images["identifier"] + images["length"]  # one image has one length
    more = {"actions": np.zeros(0, ACTION), "images": images, "after": None, "tie": None, "time_unit": "seconds"}
    return dataclasses.replace(w, arrive=1000.0 * np.arange(len(w)), **more)


@pytest.mark.parametrize("seed", range(60))
def test_an_engine_with_room_for_all_delivers_the_ceiling(seed: int) -> None:
    """Salts, adapters, images, explicit tokens, requests that do not read the cache, blocks of any size."""
    r = Random(seed)
    w = one_by_one(draw_case(r, 24).workload)
    settings = EngineSettings(num_gpu_blocks=4000, block_size=r.choice([1, 3, 4, 8, 16]), max_num_seqs=4, max_model_len=400)
    done = replay(dataclasses.replace(w, engine={}), settings, linear(0.01, 0.0, 0.0))
    assert done.status == "complete"
    found = ladder(w, settings.block_size, np.zeros(len(w)), done.requests["hit"], admitted=done.requests["scheduled"])
    assert found.of_delivered.tolist() == found.of_ceiling.tolist()
    assert found.queries == int(w.num_prompt.sum())


@pytest.mark.parametrize("page_size", [1, 16])
def test_sglang_delivers_the_ceiling(page_size: int) -> None:
    w = one_by_one(generate("multi_turn_chat", requests=40))
    done = replay(w, SglangSettings(max_total_tokens=2_000_000 // page_size * page_size, page_size=page_size))
    found = ladder(w, page_size, np.zeros(len(w)), done.requests["hit"], admitted=done.requests["scheduled"])
    assert found.of_delivered.tolist() == found.of_ceiling.tolist()
    assert found.ceiling > 0


@pytest.mark.parametrize("seed", range(40))
def test_to_the_token(seed: int) -> None:
    """The tree finds what comparing every pair of requests finds, below each root."""
    r = Random(seed)
    w = dataclasses.replace(draw_case(r, 30).workload, first_image=None, images=np.zeros(0, IMAGE))
    order = np.arange(len(w))
    r.shuffle(order)  # type: ignore[arg-type]
    root = np.array([r.randrange(3) for _ in order])
    found = shared_prefixes(w, order, root).matched
    content = [tokens_of(w, i) for i in range(len(w))]
    for k, i in enumerate(order.tolist()):
        best = 0
        for j in order[:k].tolist():
            if root[j] == root[i]:
                mine, other = content[i][: w.num_prompt[i]], content[j][: max(w.num_prompt[j], len(content[j]) - 1)]
                n = min(len(mine), len(other))
                different = np.flatnonzero(mine[:n] != other[:n])
                best = max(best, int(different[0]) if len(different) else n)
        assert found[i] == best


def test_every_request_ends_on_an_edge_that_spells_its_tokens() -> None:
    w = generate("few_shot_branching", requests=60)
    s = shared_prefixes(w, np.arange(len(w)), np.zeros(len(w), np.int64))
    for i in range(len(w)):
        edge, tokens = int(s.last[i]), 0
        while edge > s.roots:
            tokens += int(s.edges["n"][edge])
            edge = int(s.edges["parent"][edge])
        assert edge == 1
        assert tokens == max(int(w.num_prompt[i]), int(w.num_prompt[i]) + int(w.num_output[i]) - 1)


def test_equal_placeholders_of_different_images_are_different_content() -> None:
    w = workload([request(f"r{i}", [shared(24)], 2, 100 * i) for i in range(3)])
    images = np.array([(7, 6, 10), (8, 6, 10), (7, 6, 10)], IMAGE)
    with_images = dataclasses.replace(w, images=images, first_image=np.arange(4))
    assert ladder(with_images, 4, np.zeros(3), np.zeros(3)).of_ceiling.tolist() == [0, 4, 20]
    assert replay(with_images).requests["hit"].tolist() == [0, 4, 20]


def placed_by_hand() -> tuple[Workload, np.ndarray]:
    """Five requests with one prompt of 40 tokens, on replicas 0, 1, 0, 1, 0."""
    return workload([request(f"r{i}", [shared(40)], 1, 10 * i) for i in range(5)]), np.array([0, 1, 0, 1, 0])


def test_what_routing_and_restarts_lose() -> None:
    w, placed = placed_by_hand()
    life = np.array([0, 0, 0, 0, 1])
    found = ladder(w, 4, placed, [0, 0, 36, 12, 0], life=life)
    assert found.of_ceiling.tolist() == [0, 36, 36, 36, 36]
    assert found.of_routed.tolist() == [0, 0, 36, 36, 36]
    assert found.of_kept.tolist() == [0, 0, 36, 36, 0]
    assert [(tokens, loss) for _, tokens, _, loss in found.rungs()] == [
        (144, "new content"),
        (108, "routing"),
        (72, "cold starts"),
        (48, "capacity and timing"),
    ]
    assert found.summary()["routed_rate"] == 108 / 200


def test_requests_that_nobody_admitted_count_nowhere_and_leave_nothing_behind() -> None:
    w, placed = placed_by_hand()
    admitted = np.array([np.nan, 10.0, 21.0, 20.0, 40.0])
    found = ladder(w, 4, np.where(np.arange(5) == 4, -1, placed), np.full(5, 7), admitted=admitted)
    assert found.of_queries.tolist() == [0, 40, 40, 40, 0]
    assert found.of_ceiling.tolist() == [0, 0, 36, 36, 0]
    assert found.of_routed.tolist() == [0, 0, 0, 36, 0]
    assert found.of_delivered.tolist() == [0, 7, 7, 7, 0]


def test_one_replica_loses_nothing_by_routing() -> None:
    w, _ = placed_by_hand()
    found = ladder(w, 4, np.zeros(5), np.zeros(5))
    assert found.routed == found.ceiling == found.kept
    assert len(found.rungs()) == 3


def test_no_content_and_no_request_are_no_rate() -> None:
    w, placed = placed_by_hand()
    blind = ladder(dataclasses.replace(w, prompts_have_content=False), 4, placed, np.zeros(5))
    empty = ladder(nothing(), 16, np.zeros(0), np.zeros(0))
    for found in (blind, empty):
        assert np.isnan([rate for _, _, rate, _ in found.rungs()]).all()
        assert found.summary()["ceiling_rate"] is None
