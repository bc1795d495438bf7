"""Settings filled in as the engine does at start-up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simkv.engine.engines import merge
from simkv.engine.resolve import resolve
from simkv.errors import SettingsError
from simkv.settings import EngineSettings, KVGroup
from simkv.workload.workload import RUN, Workload


def workload(lengths: list[tuple[int, int]], **fields: Any) -> Workload:
    n = len(lengths)
    prompt, output = (np.array([x[k] for x in lengths], np.int32) for k in (0, 1))
    runs = np.zeros(n, RUN)
    runs["seed"], runs["n"] = np.arange(n), prompt + output
    return Workload("test", "test", np.arange(n, dtype=np.float64), prompt, output, np.arange(n + 1), runs, **fields)


TWO = workload([(1000, 10), (2000, 20)])
RECORDED = {"num_gpu_blocks": 40, "max_model_len": 8192, "max_num_seqs": 128, "max_num_batched_tokens": 2048, "async_scheduling": False}


def test_defaults_on_an_h100() -> None:
    r = resolve(EngineSettings(), TWO)
    assert r.max_model_len == 2032
    assert (r.max_num_batched_tokens, r.max_num_seqs, r.max_running) == (8192, 1024, 1024)
    assert (r.gpu_memory_utilization, r.async_scheduling, r.scheduler_reserve_full_isl, r.watermark_blocks) == (0.92, True, True, 0)
    assert r.capacity is not None
    assert r.num_gpu_blocks == r.capacity.num_gpu_blocks
    assert r.capacity.max_model_len == 2032
    assert all(note.endswith(".") for note in r.notes)
    assert any("2,020 tokens" in note for note in r.notes)


def test_an_older_version() -> None:
    r = resolve(EngineSettings(engine_version="0.13"), TWO)
    assert (r.gpu_memory_utilization, r.async_scheduling, r.scheduler_reserve_full_isl) == (0.9, False, False)
    assert r.profile.version == "0.13"


@pytest.mark.parametrize(("asked", "told"), [("0.32", False), ("v0.29.1", False), ("0.30.2", True), ("9.9", True), ("0.12", True)])
def test_a_release_without_its_own_profile_is_told(asked: str, told: bool) -> None:
    assert any("no profile of its own" in note for note in resolve(EngineSettings(engine_version=asked), TWO).notes) is told


@pytest.mark.parametrize("change", [{"watermark": 0.1}, {"scheduler_reserve_full_isl": True}])
def test_settings_an_old_version_lacks(change: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"0\.18 has no such setting"):
        resolve(EngineSettings(engine_version="0.18", **change), TWO)
    r = resolve(EngineSettings(engine_version="0.18"), replace(TWO, engine=change))
    assert (r.watermark_blocks, r.scheduler_reserve_full_isl) == (0, False)
    assert any("is off" in note for note in r.notes)


def test_given_pool_needs_no_gpu() -> None:
    r = resolve(EngineSettings(num_gpu_blocks=200, max_num_seqs=8, max_num_batched_tokens=256, gpu="no such"), TWO)
    assert (r.num_gpu_blocks, r.capacity) == (200, None)
    assert resolve(EngineSettings(num_gpu_blocks=1000, watermark=0.0199, max_num_active_seqs=3), TWO).watermark_blocks == 19
    assert resolve(EngineSettings(num_gpu_blocks=1000, max_num_active_seqs=3), TWO).max_running == 3


def test_start_up_check_as_the_engine_says_it() -> None:
    """A real server with 64 blocks of 32 tokens refused 2,048 tokens and named 2,016: the null block does not count."""
    settings = EngineSettings(num_gpu_blocks=64, block_size=32, max_model_len=2048)
    with pytest.raises(SettingsError, match="at most 2016, the estimated maximum"):
        resolve(settings, TWO)
    assert resolve(settings.replace(max_model_len=2016), TWO).max_model_len == 2016
    assert resolve(settings, TWO, check_pool=False).max_model_len == 2048


def test_the_longest_request_sets_the_length() -> None:
    with pytest.raises(SettingsError, match=r"longest request \(r1\) sets it.*max_model_len=1584"):
        resolve(EngineSettings(num_gpu_blocks=100), TWO)
    assert resolve(EngineSettings(num_gpu_blocks=128), TWO).max_model_len == 2032


def test_a_sliding_group_needs_less() -> None:
    groups = (KVGroup("full"), KVGroup("sliding", 64))
    settings = EngineSettings(hybrid=groups, num_gpu_blocks=140, max_num_batched_tokens=16, max_num_seqs=4, async_scheduling=False)
    assert resolve(settings, TWO).num_gpu_blocks == 140  # 127 + ceil((63 + 16) / 16) + 1 = 133 of 139
    with pytest.raises(SettingsError, match="it needs 255 blocks"):
        resolve(settings.replace(max_num_batched_tokens=1968), TWO)
    with pytest.raises(SettingsError, match="it needs 140"):
        resolve(settings.replace(max_num_batched_tokens=64, async_scheduling=True), TWO)


def test_without_chunked_prefill_the_budget_holds_a_prompt() -> None:
    with pytest.raises(SettingsError, match="max_num_batched_tokens=512: allowed is at least max_model_len=2032"):
        resolve(EngineSettings(enable_chunked_prefill=False, max_num_batched_tokens=512), TWO)
    assert resolve(EngineSettings(enable_chunked_prefill=False, gpu="L4", model="Llama-3.2-1B"), TWO).max_num_batched_tokens == 2048


def test_recorded_settings_lie_under_the_users() -> None:
    w = replace(TWO, engine=RECORDED)
    r = resolve(EngineSettings(), w)
    assert (r.num_gpu_blocks, r.max_model_len, r.max_num_seqs, r.async_scheduling) == (40, 8192, 128, False)
    r = resolve(EngineSettings(max_num_seqs=4, num_gpu_blocks=600), w)
    assert (r.num_gpu_blocks, r.max_num_seqs, r.max_num_batched_tokens) == (600, 4, 2048)
    with pytest.raises(SettingsError, match="estimated maximum"):
        resolve(EngineSettings(num_gpu_blocks=100), w)


def test_merging_twice_changes_nothing() -> None:
    w = replace(TWO, engine={**RECORDED, "watermark": 0.2, "hybrid": ({"type": "full"}, {"type": "sliding", "window": 9})})
    once = merge(EngineSettings(max_num_seqs=3), w)
    assert merge(once, w) == once
    assert resolve(once, w) == resolve(EngineSettings(max_num_seqs=3), w)
    assert resolve(once.replace(engine_version="0.20"), w).watermark_blocks == 0


def test_an_explicit_default_also_wins() -> None:
    w = replace(TWO, engine={**RECORDED, "block_size": 4})
    assert merge(EngineSettings(), w).block_size == 4
    assert merge(EngineSettings(block_size=16), w, ["block_size"]).block_size == 16
    r = resolve(EngineSettings(), w, explicit=["num_gpu_blocks", "block_size"])
    assert r.capacity is not None
    assert r.block_size == 16


def test_recorded_hybrid_groups() -> None:
    engine = {**RECORDED, "hybrid": ({"type": "full"}, {"type": "sliding", "window": 9, "block_size": 8})}
    r = resolve(EngineSettings(), replace(TWO, engine=engine))
    assert [(g.type, g.window, g.block_size) for g in r.groups] == [("full", None, 16), ("sliding", 9, 8)]
    assert (r.hash_block_size, r.scheduler_block_size) == (8, 16)


def test_a_hybrid_model_described_as_one_group_is_said() -> None:
    notes = resolve(EngineSettings(model="gpt-oss-120b"), TWO).notes
    assert any("hybrid=model" in note for note in notes)
    settings = EngineSettings().with_pairs(["model=gpt-oss-120b", "hybrid=model"])
    assert not any("hybrid=model" in note for note in resolve(settings, TWO).notes)
    assert [g.type for g in resolve(settings, TWO).groups] == ["sliding", "full"]


def test_warnings() -> None:
    notes = " ".join(resolve(EngineSettings(block_size=4096), TWO).notes)
    assert "nothing can be found in the cache" in notes
    notes = " ".join(resolve(EngineSettings(max_num_seqs=300, max_num_batched_tokens=256), TWO).notes)
    assert "refuses to start" in notes
    notes = " ".join(resolve(EngineSettings(model="Gemma-2-9B"), workload([(9000, 1)])).notes)
    assert "made for 8,192" in notes


def test_an_empty_workload() -> None:
    assert resolve(EngineSettings(), workload([])).max_model_len == 16
