"""KV events from logs: the content they say is there is the content the log says is there, when the log says it."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.engine.engines import make_engine
from simkv.events import layout as ev
from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.kv.request_keys import request_keys
from simkv.fleet.kv_feed import KVFeed
from simkv.fleet.truth import Truth
from tests.engine.cases import Case, draw_case
from tests.fleet.test_truth import sglang_engine

Known = list[tuple[float, int, int]]


def vllm_case(seed: int) -> Case:
    return draw_case(Random(seed), 24)


def vllm_engine(case: Case) -> Any:
    return make_engine(case.workload, case.settings, case.step_time.record(), log=True)


def expected(engine: Any) -> Known:
    """``(time, kind, key)`` from the log, row by row."""
    log, out = engine.event_log(), []
    keys, steps = iter(log.keys.tolist()), log.steps
    holds: dict[int, int] = {}
    for turn in range(len(steps)):
        last = turn + 1 == len(steps)
        end = float(engine.counters.now) if last and engine.config.virtual else float(steps["time"][turn])
        time = end if last else min(float(steps["end"][turn]), float(steps["time"][turn + 1]))
        time = max(time, out[-1][0]) if out else time
        for row in log.events[log.turn_slice(turn)]:
            kind, group, block = int(row["kind"]) & ev.KIND_MASK, int(row["kind"]) >> ev.KIND_BITS, int(row["arg"])
            if kind in (ev.STORED, ev.STORED_EXTRA, ev.HOST_STORED):
                key = next(keys)
                if kind == ev.STORED and group == 0:
                    if key not in holds.values():
                        out.append((time, 1, key))
                    holds[block] = key
            elif kind in (ev.RECYCLED, ev.EVICTED) and block in holds:
                key = holds.pop(block)
                if key not in holds.values():
                    out.append((time, 0, key))
            elif kind == ev.CLEARED:
                holds.clear()
                out.append((time, 2, 0))
    return out


def taken(feed: KVFeed, slot: int, upto: float) -> list[tuple[int, int]]:
    batch = feed.collect(slot, upto)
    return [] if batch is None else list(zip(batch.kinds.tolist(), batch.keys.tolist(), strict=True))


def logged(seed: int, make: Any) -> Any:
    if make is vllm_engine:
        return vllm_engine(vllm_case(seed))
    engine = sglang_engine(Random(seed))
    return type(engine)(engine.workload, engine.choices, _linear(), log=True, settings=_with_blocks(engine))


def _linear() -> Any:
    from simkv.engine.step_time import linear

    return linear(0.01, 1e-5, 1e-4).record()


def _with_blocks(engine: Any) -> Any:
    engine.settings.num_gpu_blocks = int(engine.config.num_pages) + 1
    return engine.settings


@pytest.mark.parametrize("make", [vllm_engine, sglang_engine])
def test_events_are_those_of_the_log(make: Any) -> None:
    stored = removed = 0
    for seed in range(24):
        engine = logged(seed, make)
        feed = KVFeed([None, engine])
        engine.advance()
        known = expected(engine)
        assert taken(feed, 1, np.inf) == [(kind, key) for _, kind, key in known]
        stored += sum(kind == 1 for _, kind, _ in known)
        removed += sum(kind == 0 for _, kind, _ in known)
    assert stored > 300
    assert removed > 100


@pytest.mark.parametrize("make", [vllm_engine, sglang_engine])
def test_in_pieces_and_drained_they_are_the_same(make: Any) -> None:
    for seed in range(16):
        kept, drained = logged(seed, make), logged(seed, make)
        feed = KVFeed([kept, drained, None])
        thrown = KVFeed([None, drained], drain=True)
        feed.replace(1, None)
        r, horizon = Random(seed), float(kept.workload.arrive.max()) + 2
        moments = [*sorted(r.uniform(0, horizon) for _ in range(30)), np.inf]
        one: list[tuple[int, int]] = []
        other: list[tuple[int, int]] = []
        for at in moments:
            kept.advance(at)
            drained.advance(at)
            one += taken(feed, 0, np.inf)
            other += taken(thrown, 1, np.inf)
            assert int(drained.counters.logged_rows) == int(drained.counters.logged_keys) == 0
        assert one == other
        assert len(one) == len(expected(kept))


def test_nothing_is_known_before_its_time() -> None:
    late = 0
    for seed in range(40):
        case = vllm_case(seed)
        if case.workload.time_unit != "seconds":
            continue
        engine = vllm_engine(case)
        feed = KVFeed([engine], lag_s=0.5)
        r, horizon = Random(seed), float(case.workload.arrive.max()) + 2
        got: list[tuple[int, int]] = []
        for at in sorted(r.uniform(0, horizon) for _ in range(40)):
            engine.advance(at)
            got += taken(feed, 0, at)
            known = [(kind, key) for time, kind, key in expected(engine) if time + 0.5 <= at]
            assert got == known
            late += len(expected(engine)) > len(known)
    assert late > 100


def test_an_index_fed_at_once_knows_the_truth() -> None:
    asked = 0
    for seed in range(40):
        case = vllm_case(seed)
        if len(case.settings.groups) > 1 or case.settings.groups[0].window or not case.settings.enable_prefix_caching:
            continue
        w = dataclasses.replace(case.workload, skip_cache=None)
        engines = [make_engine(w, case.settings, case.step_time.record(), log=True) for _ in range(3)]
        feed, index, truth = KVFeed(engines, drain=True), KVIndex(3), Truth(w, engines)
        size = case.settings.block_size
        keys = request_keys(w, case.settings.hash_block_size, case.settings.lora_path_in_key)
        if case.settings.hash_block_size != size:
            continue
        r, horizon, out = Random(seed), float(w.arrive.max()) + 40, np.zeros(3, np.int32)
        for _ in range(20):
            for engine in engines:
                engine.advance(r.uniform(0, horizon))
            feed.deliver([0, 1, 2], np.inf, [index])
            for i in range(len(w)):
                index.count(keys, i, out)
                most = (int(w.num_prompt[i]) - 1) // size
                assert np.minimum(out, most).tolist() == (truth.cached(i, [0, 1, 2]) // size).tolist()
                asked += bool(out.any())
    assert asked > 300
