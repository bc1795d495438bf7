"""KV events that the engine writes itself: those its log tells, in the same order and known at the same times."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from simkv.engine.contract import ABORTED, KV_CLEARED, KV_STORED, RUNNING, WAITING
from simkv.engine.engines import make_engine, writes_kv_events
from simkv.engine.vllm.integrity import oldest_blocks
from simkv.fleet.kv_feed import KVFeed
from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings
from simkv.settings.fleet import FleetSettings
from simkv.workload.generators import generate
from tests.engine.cases import Case, draw_case

Known = list[tuple[int, int]]


def draw(seed: int) -> Case | None:
    """A small random case of an engine that can write KV events: small pools, twins, preemptions, aborts and resets."""
    case = draw_case(Random(seed), 24)
    return case if writes_kv_events(case.settings) and case.settings.enable_prefix_caching else None


def engine_of(case: Case, direct: bool, log: bool) -> Any:
    engine: Any = make_engine(case.workload, case.settings, case.step_time.record(), log=log)
    if direct:
        engine.write_kv_events()
    return engine


def restart(engine: Any, direct: bool, log: bool, case: Case, at: float, down: float) -> None:
    """The process dies with all it had; the next one starts some seconds later and takes what has not come yet."""
    fresh, old = engine_of(case, direct, log), engine.counters
    status = engine.state.reqs["status"]
    fresh.state.reqs["status"][:] = np.where((status == WAITING) | (status == RUNNING), ABORTED, status)
    engine.restart(fresh, at, [])
    engine.counters.next_arrival, engine.counters.next_action = old.next_arrival, old.next_action
    engine.counters.now = at + down


def taken(feed: KVFeed, upto: float) -> Known:
    batch = feed.collect(0, upto)
    return [] if batch is None else list(zip(batch.kinds.tolist(), batch.keys.tolist(), strict=True))


@pytest.mark.parametrize("lag", [0.0, 0.3])
def test_they_are_those_of_the_log_at_every_moment(lag: float) -> None:
    seen = late = cleared = 0
    for seed in range(150):
        case = draw(seed)
        if case is None:
            continue
        r, horizon = Random(seed), float(case.workload.arrive.max()) + 3
        log = r.random() < 0.5
        read, direct = engine_of(case, False, True), engine_of(case, True, log)
        feeds = KVFeed([read], lag, drain=r.random() < 0.5), KVFeed([direct], lag)
        moments = sorted(r.uniform(0, horizon) for _ in range(r.choice([3, 20, 60])))
        moments = sorted([*moments, *(at + r.uniform(0, 0.02) for at in moments), *(at + lag + r.uniform(0, 0.02) for at in moments)])
        for at in moments:
            for engine in (read, direct):
                engine.advance(float(np.nextafter(at, -np.inf)))
            if r.random() < 0.06:
                down = r.choice([0.0, 0.001, 0.5])
                restart(read, False, True, case, at, down)
                restart(direct, True, log, case, at, down)
            if r.random() < 0.8:
                one, other = (taken(feed, at) for feed in feeds)
                assert one == other
                seen += len(one)
        for engine in (read, direct):
            engine.advance()
        late += int(direct.counters.logged_kv)
        one, other = (taken(feed, np.inf) for feed in feeds)
        assert one == other
        cleared += sum(kind == KV_CLEARED for kind, _ in one)
    assert seen > 2000
    assert late > 300
    assert cleared > 5


@pytest.mark.parametrize("seed", [seed for seed in range(60) if draw(seed) is not None])
def test_told_one_after_the_other_they_are_what_the_cache_holds(seed: int) -> None:
    case = draw(seed)
    assert case is not None
    engine, held, r = engine_of(case, True, False), set[int](), Random(seed)
    feed, at = KVFeed([engine]), 0.0
    for _ in range(30):
        at += r.uniform(0, 0.2 if case.workload.time_unit == "seconds" else 4)
        engine.advance(at)
        for kind, key in taken(feed, np.inf):
            if kind == KV_CLEARED:
                held.clear()
            elif kind == KV_STORED:
                assert key not in held
                held.add(key)
            else:
                held.remove(key)
        assert held == oldest_blocks(engine).keys()


def columns(run: FleetRun) -> list[npt.NDArray[np.void]]:
    return [run.decisions, run.requests, run.operations, *(r.steps for r in run.replicas)]


def test_a_fleet_decides_the_same_with_events_from_engines_and_from_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = generate("multi_turn_chat", seed=4)
    operations = [
        {"kind": "fail", "at": 20.0, "replica": 2, "down_s": 15.0},
        {"kind": "deploy", "at": 50.0, "startup_s": 5.0, "warm": 2},
    ]
    fleet = FleetSettings.from_mapping({"replicas": 3, "router": "dynamo-kv", "event_lag_s": 0.2, "operations": operations})
    mixed = dataclasses.replace(fleet, overrides=((1, (("engine", "sglang"), ("max_total_tokens", 48_000), ("page_size", 16))),))
    for one in (fleet, mixed):
        direct = replay_fleet(traffic, EngineSettings(num_gpu_blocks=1500), one, events=False)
        with monkeypatch.context() as patched:
            patched.setattr("simkv.fleet.replicas.writes_kv_events", lambda _: False)
            read = replay_fleet(traffic, EngineSettings(num_gpu_blocks=1500), one, events=False)
        assert direct.log is None
        for a, b in zip(columns(direct), columns(read), strict=True):
            for name in set(a.dtype.names or ()) - {"first_event"}:
                np.testing.assert_array_equal(a[name], b[name], name)


def test_a_log_that_is_given_up_ends_no_router_s_events() -> None:
    traffic = generate("multi_turn_chat", seed=4)
    settings, fleet = EngineSettings(num_gpu_blocks=3000), FleetSettings(replicas=3, router="dynamo-kv")
    whole, short = (replay_fleet(traffic, settings, fleet, max_events=most) for most in (None, 600))
    assert whole.log is not None
    assert short.log is None
    assert sum("given up beyond 200 events" in note for note in short.notes) == 3
    np.testing.assert_array_equal(whole.decisions, short.decisions)
