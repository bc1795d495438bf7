"""What Truth says a replica's cache holds is what the replica then finds, and asking changes nothing."""

from __future__ import annotations

import copy
import dataclasses
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simkv.engine.engines import make_engine
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.step_time import step_index
from simkv.fleet.truth import Truth
from simkv.workload.workload import ACTION, Workload
from tests.engine.cases import draw_case
from tests.engine.sglang.cases import draw_config, draw_workload

APART = 10_000.0
"""Time between arrivals: each request finds an idle engine."""


def apart(w: Workload) -> Workload:
    """The same requests, one at a time, with nothing else going on."""
    return dataclasses.replace(w, arrive=APART * np.arange(len(w)), after=None, tie=None, actions=np.zeros(0, ACTION), time_unit="steps")


def vllm_engine(r: Random) -> Any:
    case = draw_case(r, 24)
    return make_engine(apart(case.workload), case.settings, step_index().record(), log=False)


def sglang_engine(r: Random) -> Any:
    config = draw_config(r)
    settings = SimpleNamespace(
        engine="sglang",
        block_size=config.page_size,
        hash_block_size=config.page_size,
        lora_path_in_key=True,
        enable_prefix_caching=not config.disable_radix_cache,
    )
    return SglangEngine(apart(draw_workload(r, config, False, 24)), config, step_index().record(), log=False, settings=settings)


def memory_of(engine: Any) -> list[bytes]:
    return [part.tobytes() for part in [*engine.state, engine.counters, engine.config] if hasattr(part, "tobytes")]


@pytest.mark.parametrize("make", [vllm_engine, sglang_engine])
def test_an_idle_engine_finds_what_truth_says(make: Any) -> None:
    admitted = hits = 0
    for seed in range(60):
        engine = make(Random(seed))
        w = engine.workload
        truth = Truth(w, [None, engine])
        for i in range(len(w)):
            engine.advance(w.arrive[i] - 1)
            before = memory_of(engine) if i % 8 == 0 else []
            said = truth.cached(i, [1])
            assert not before or before == memory_of(engine)
            assert said[0] == -1
            engine.advance(w.arrive[i] + APART - 2)
            request = engine.state.reqs[i]
            if np.isnan(request.scheduled):
                continue
            admitted += 1
            hits += said[1] > 0
            assert said[1] == request.hit, (seed, i)
    assert admitted > 400
    assert hits > 120


def test_every_kind_of_replica_at_once() -> None:
    """Busy replicas of one workload, each at another moment: together they are told what each is told alone."""
    several = different = 0
    for seed in range(40):
        r = Random(seed)
        case = draw_case(r, 24)
        w = case.workload
        engines = [make_engine(w, case.settings, case.step_time.record(), log=False) for _ in range(4)]
        horizon = float(w.arrive.max()) + 20 * (1.0 if w.time_unit == "steps" else 0.01)
        truth = Truth(w, engines)
        alone = [Truth(w, [engine]) for engine in engines]
        for _ in range(8):
            for engine in engines:
                engine.advance(r.uniform(0.0, horizon))
            live = sorted(r.sample(range(4), r.randint(1, 4)))
            i = r.randrange(len(w))
            said = truth.cached(i, live)
            assert [alone[slot].cached(i, [0])[0] if slot in live else -1 for slot in range(4)] == said.tolist()
            several += len(live) > 1
            different += len(set(said[live].tolist())) > 1
    assert several > 150
    assert different > 30


def test_a_replaced_replica_is_empty() -> None:
    case = draw_case(Random(5), 24)
    w = apart(case.workload)
    truth = Truth(w, [None])
    engine = make_engine(w, case.settings, step_index().record(), log=False)
    truth.replace(0, engine)
    engine.advance(APART * len(w))
    assert any(truth.cached(i, [0])[0] > 0 for i in range(len(w)))
    truth.replace(0, make_engine(w, case.settings, step_index().record(), log=False))
    assert not any(truth.cached(i, [0])[0] for i in range(len(w)))


def test_copies_are_watched_where_they_are() -> None:
    """Growing moves a replica's arrays; Truth follows."""
    case = draw_case(Random(5), 24)
    w = apart(case.workload)
    engine = make_engine(w, case.settings, step_index().record(), log=False)
    truth = Truth(w, [engine])
    truth.cached(0, [0])
    engine.advance(APART * len(w))
    engine.state = copy.deepcopy(engine.state)
    fresh = Truth(w, [engine])
    assert [truth.cached(i, [0])[0] for i in range(len(w))] == [fresh.cached(i, [0])[0] for i in range(len(w))]
