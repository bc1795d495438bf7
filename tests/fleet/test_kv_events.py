"""Routers that follow KV events: with none late they know what the caches hold; late ones make them miss."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings, Settings, SglangSettings
from simkv.settings.fleet import FleetSettings, Operation
from simkv.workload.generators import generate

TRAFFIC = generate("multi_turn_chat", seed=4)


def run(settings: Settings, events: bool = True, **more: object) -> FleetRun:
    fleet = FleetSettings.from_mapping({"replicas": 3, "router": "dynamo-kv", **more})
    return replay_fleet(TRAFFIC, settings, fleet, events=events)


@pytest.mark.parametrize(
    "settings", [EngineSettings(num_gpu_blocks=3000), SglangSettings(max_total_tokens=48_000, page_size=16)], ids=["vllm", "sglang"]
)
def test_belief_is_truth_when_nothing_is_late(settings: Settings) -> None:
    fleet = run(settings)
    d = fleet.decisions
    assert d["matched"].max() > 0
    believed = np.minimum(d["matched"].astype(np.int64), fleet.workload.num_prompt[d["req"]] - 1) // 16 * 16
    # An event is known when the output of its step has been processed; the cache has or loses the block a little earlier.
    assert (believed == d["cached"]).mean() > 0.95


def test_late_events_are_believed_late() -> None:
    settings = EngineSettings(num_gpu_blocks=3000)
    prompt, late = run(settings), run(settings, event_lag_s=60.0)
    assert late.decisions["matched"].sum() < prompt.decisions["matched"].sum()
    assert late.summary()["hits"] < prompt.summary()["hits"]


def test_the_log_of_the_events_alone_is_thrown_away_and_changes_nothing() -> None:
    settings = EngineSettings(num_gpu_blocks=3000)
    operations = (Operation(kind="deploy", at=30.0, startup_s=5.0, warm=2),)
    with_log, without = (run(settings, events=events, operations=operations) for events in (True, False))
    assert with_log.log is not None
    assert without.log is None
    np.testing.assert_array_equal(with_log.decisions, without.decisions)
    np.testing.assert_array_equal(with_log.requests, without.requests)
