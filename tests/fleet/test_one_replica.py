"""A fleet of one replica is the replay itself, row by row; operations lose no request."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.replay import Progress, Run, replay
from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings, Settings, SglangSettings
from simkv.settings.fleet import FleetSettings, Operation
from simkv.workload.bundled import bundled
from simkv.workload.generators import generate
from simkv.workload.registry import read_workload
from simkv.workload.transform import limit
from simkv.workload.workload import Workload

SMALL = EngineSettings(block_size=16, num_gpu_blocks=3000)


def mooncake(n: int) -> Workload:
    return limit(read_workload(bundled()["mooncake_conversation"]), n)


def assert_same(a: Run, b: Run) -> None:
    assert a.log is not None
    assert b.log is not None
    for name in ("rows", "blocks", "keys", "steps"):
        np.testing.assert_array_equal(getattr(a.log, name), getattr(b.log, name))
    np.testing.assert_array_equal(a.gaps, b.gaps)
    for name in a.requests.dtype.names or ():
        np.testing.assert_array_equal(a.requests[name], b.requests[name])
    assert a.counters == b.counters
    assert a.end_time_s == b.end_time_s


@pytest.mark.parametrize("settings", [EngineSettings(num_gpu_blocks=20_000), SglangSettings(page_size=16)], ids=["vllm", "sglang"])
def test_one_replica_is_the_replay(settings: Settings) -> None:
    workload = mooncake(120)
    fleet = replay_fleet(workload, settings, FleetSettings())
    assert_same(replay(workload, settings), fleet.replica(0))
    assert fleet.summary()["finished"] == 120


@pytest.mark.parametrize("generator", ["multi_turn_chat", "agents_with_pauses"])
def test_turns_that_follow_answers_come_when_they_should(generator: str) -> None:
    workload = limit(generate(generator, seed=3), 150)
    assert workload.after is not None
    assert (workload.after >= 0).any()
    assert_same(replay(workload, SMALL), replay_fleet(workload, SMALL, FleetSettings()).replica(0))


def test_a_closed_loop_without_pauses(tmp_path: object) -> None:
    from dataclasses import replace

    workload = limit(generate("multi_turn_chat", seed=5), 100)
    assert workload.after is not None
    arrive = np.where(workload.after >= 0, 0.0, workload.arrive)
    workload = replace(workload, arrive=arrive)
    assert_same(replay(workload, SMALL), replay_fleet(workload, SMALL, FleetSettings()).replica(0))
    fleet = replay_fleet(workload, SMALL, FleetSettings(replicas=3))
    follows = np.flatnonzero(workload.after >= 0)
    np.testing.assert_array_equal(fleet.requests["arrive"][follows], fleet.requests["finish"][workload.after[follows]])


def run(operations: tuple[Operation, ...], n: int = 300, **more: object) -> FleetRun:
    settings = FleetSettings.from_mapping({"replicas": 4, "operations": operations, **more})
    return replay_fleet(mooncake(n), EngineSettings(num_gpu_blocks=20_000), settings)


def test_a_replica_that_dies_loses_no_request() -> None:
    fleet = run((Operation(kind="fail", at=30.0, replica=1),))
    s = fleet.summary()
    assert s["finished"] == s["requests"] == 300
    assert s["sent_again"] > 0
    again = np.flatnonzero(fleet.attempts)
    assert (fleet.placed[again] != 1).all()
    assert not (fleet.decisions["worker"][fleet.decisions["time"] > 30.0] == 1).any()
    assert fleet.requests["arrive"][again].max() <= 30.0, "timed from the first arrival"


def test_requests_are_given_up_and_said_so_when_nothing_is_left_to_send_them_to() -> None:
    dead = tuple(Operation(kind="fail", at=30.0, replica=i) for i in range(4))
    fleet = run(dead)
    s = fleet.summary()
    assert s["finished"] + s["never_served"] == 300
    assert any("never sent" in note for note in fleet.notes)


@pytest.mark.parametrize("drain", [True, False])
def test_a_rolling_deploy_restarts_every_replica_with_an_empty_cache(drain: bool) -> None:
    fleet = run((Operation(kind="deploy", at=20.0, drain=drain, startup_s=5.0),), 400)
    assert fleet.summary()["finished"] == 400
    kinds = [(int(k), int(r)) for k, r in zip(fleet.operations["kind"], fleet.operations["replica"], strict=True)]
    assert [r for k, r in kinds if k == 5] == [0, 1, 2, 3]
    assert bool(fleet.summary()["sent_again"]) is not drain
    assert (fleet.decisions["worker"] >= 0).all()


def test_same_seed_same_log() -> None:
    a, b = (run((), router="random", seed=7) for _ in range(2))
    c = run((), router="random", seed=8)
    np.testing.assert_array_equal(a.decisions, b.decisions)
    assert a.log is not None
    assert b.log is not None
    for x, y in zip(a.log.replicas, b.log.replicas, strict=True):
        np.testing.assert_array_equal(x.rows, y.rows)
    assert not np.array_equal(a.decisions["worker"], c.decisions["worker"])


def test_scaling_out_and_in() -> None:
    fleet = run((Operation(kind="add", at=10.0, count=2, startup_s=5.0), Operation(kind="remove", at=40.0, replica=0)))
    assert fleet.summary()["finished"] == 300
    late = fleet.decisions[fleet.decisions["time"] > 40.0]
    assert set(late["worker"].tolist()) == {1, 2, 3, 4, 5}


def test_warming_requests_are_no_traffic() -> None:
    fleet = run((Operation(kind="deploy", at=60.0, startup_s=5.0, warm=4),), 400)
    assert fleet.traffic == 400 < len(fleet.workload)
    assert fleet.summary()["finished"] == 400
    warmed = fleet.requests[400:]
    assert (warmed["status"] == 3).all()
    assert (fleet.placed[400:] >= 0).all()
    assert not np.isin(fleet.decisions["req"], np.arange(400, len(fleet.workload))).any()


def test_decisions_know_what_the_caches_held() -> None:
    fleet = run((), router="least-load")
    d = fleet.decisions
    assert (d["best_cached"] >= d["cached"]).all()
    assert (d["cached"] >= 0).all()
    assert d["cached"].max() > 0
    # Of requests that came to a replica together, the later ones find what the first ones are about to compute.
    _, first = np.unique(np.stack([d["time"], d["worker"].astype(float)]), axis=1, return_index=True)
    at_once = first[fleet.requests["scheduled"][d["req"][first]] == d["time"][first]]
    assert len(at_once) > 10
    np.testing.assert_array_equal(fleet.requests["hit"][d["req"]][at_once], d["cached"][at_once])
    blind = replay_fleet(mooncake(300), EngineSettings(num_gpu_blocks=20_000), fleet.fleet, truth=False)
    assert (blind.decisions["cached"] == -1).all()
    np.testing.assert_array_equal(blind.decisions["worker"], d["worker"])


def test_a_fleet_reports_and_can_be_cancelled() -> None:
    seen: list[float] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress.fraction)
        return len(seen) < 3

    workload = mooncake(2000)
    fleet = replay_fleet(workload, EngineSettings(num_gpu_blocks=20_000), FleetSettings(replicas=3), progress=watch)
    if fleet.status == "partial":
        assert len(seen) == 3
        assert 0 < fleet.summary()["finished"] < 2000
    else:  # a machine so fast that there was nothing to report
        assert fleet.summary()["finished"] == 2000
    assert seen == sorted(seen)
    whole = replay_fleet(workload, EngineSettings(num_gpu_blocks=20_000), FleetSettings(replicas=3), progress=lambda _: True)
    silent = replay_fleet(workload, EngineSettings(num_gpu_blocks=20_000), FleetSettings(replicas=3))
    np.testing.assert_array_equal(whole.decisions, silent.decisions)
    np.testing.assert_array_equal(whole.requests, silent.requests)


def test_replicas_of_different_engines_and_sizes() -> None:
    fleet = run(
        (Operation(kind="fail", at=30.0, replica=1, down_s=5.0),),
        router="least-load",
        overrides=[{"replica": 1, "engine": "sglang", "page_size": 16}, {"replica": 2, "num_gpu_blocks": 9000}],
    )
    assert [r.resolved.engine for r in fleet.replicas] == ["vllm", "sglang", "vllm", "vllm"]
    assert fleet.replica(2).resolved.num_gpu_blocks == 9000
    s = fleet.summary()
    assert s["finished"] == 300
    assert all(r["requests"] > 0 for r in s["per_replica"])
    assert sum(r["hits"] for r in s["per_replica"]) == s["hits"] == sum(p.counters["hits"] for p in fleet.replicas)
    assert (fleet.decisions["cached"] >= 0).all()
