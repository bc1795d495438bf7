"""Older releases decide differently in exactly the places the profiles name."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.engine.profiles import profiles
from simkv.engine.resolve import resolve
from simkv.engine.step_time import step_index
from simkv.engine.vllm.engine import VllmEngine
from simkv.errors import SettingsError
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from tests.engine.cases import draw_case
from tests.engine.hand import case, request, run, shared, workload

VERSIONS = [p.version for p in profiles()]


def queue_at_the_end(version: str, *args: Any, **config: Any) -> list[int]:
    made = case(*args, version=version, **config)
    engine = VllmEngine(made.workload, made.settings, made.step_time.record(), log=True)
    engine.advance()
    queue: list[int] = engine.free_queue().tolist()
    return queue


def since(first: str) -> list[tuple[str, bool]]:
    return [(v, i >= VERSIONS.index(first)) for i, v in enumerate(VERSIONS)]


@pytest.mark.parametrize(("version", "new"), since("0.25"))
def test_where_a_block_without_a_key_goes(version: str, new: bool) -> None:
    """14 tokens are three full blocks of 4 and a begun one, block 4."""
    queue = queue_at_the_end(version, [request("r", 14)], num_gpu_blocks=8)
    assert queue == ([4, 5, 6, 7, 3, 2, 1] if new else [5, 6, 7, 4, 3, 2, 1])


@pytest.mark.parametrize("version", VERSIONS)
def test_where_blocks_go_with_caching_off(version: str) -> None:
    """Tail first in either case; the head of the queue in 0.25 and again since 0.29."""
    queue = queue_at_the_end(version, [request("r", 10)], num_gpu_blocks=8, enable_prefix_caching=False)
    to_front = version not in ("0.10", "0.13", "0.16", "0.18", "0.20", "0.22", "0.23", "0.27")
    assert queue == ([3, 2, 1, 4, 5, 6, 7] if to_front else [4, 5, 6, 7, 3, 2, 1])


@pytest.mark.parametrize(("version", "new"), since("0.27"))
def test_when_a_lookup_is_counted(version: str, new: bool) -> None:
    """The second request waits eight steps for memory, and is looked up in each of them."""
    requests = [request("first", [shared(16)], 8), request("second", [shared(8), shared(20, 2)], 1)]
    c = run(requests, version=version, num_gpu_blocks=9, scheduler_reserve_full_isl=True).counters
    assert c["preemptions"] == 0
    assert c["finished"] == 2
    waited = 8
    assert (c["requests"], c["queries"], c["hits"]) == ((2, 16 + 28, 8) if new else (2 + waited, 16 + 28 * (1 + waited), 8 * (1 + waited)))


@pytest.mark.parametrize(("version", "new"), since("0.13"))
def test_where_recomputed_prompts_are_counted(version: str, new: bool) -> None:
    """Two requests outgrow the pool; the second is preempted and admitted again with its own blocks."""
    c = run([request("a", 12, 20), request("b", 12, 20)], version=version, num_gpu_blocks=12).counters
    assert c["preemptions"] >= 1
    if new:
        assert (c["requests"], c["queries"], c["hits"]) == (2, 24, 0)
        assert c["recompute_requests"] >= 1
        assert c["recompute_hits"] > 0
    else:
        assert c["requests"] >= 3
        assert c["hits"] > 0
        assert c["recompute_requests"] == c["recompute_queries"] == c["recompute_hits"] == 0


@pytest.mark.parametrize(("version", "new"), since("0.20"))
def test_whether_the_whole_prompt_must_fit(version: str, new: bool) -> None:
    """40 tokens do not fit beside the first request; without the gate their first chunk is admitted and thrown out again."""
    requests = [request("a", 16, 12), request("b", 40, 1)]
    result = run(requests, version=version, num_gpu_blocks=13, max_num_batched_tokens=24)
    assert result.resolved.scheduler_reserve_full_isl is new
    assert (result.counters["preemptions"] == 0) is new
    assert (result.requests["scheduled"][1] > 0) is np.bool_(new)
    assert result.counters["finished"] == 2


@pytest.mark.parametrize(("version", "new"), since("0.25"))
def test_a_watermark_where_there_is_one(version: str, new: bool) -> None:
    """One block in five is kept free at admissions while something runs; a file's wish is dropped where it cannot be."""
    requests = [request("a", 16, 9), request("b", 12, 1, 1)]
    result = run(requests, version=version, num_gpu_blocks=10, watermark=0.2)
    assert result.resolved.watermark_blocks == (2 if new else 0)
    assert (result.requests["scheduled"][1] > 1) is np.bool_(new)
    if not new:
        assert any("watermark" in note for note in result.resolved.notes)
        plain = workload(requests, num_gpu_blocks=10)
        with pytest.raises(SettingsError, match="watermark"):
            replay(plain, EngineSettings(engine_version=version, watermark=0.2))


@pytest.mark.parametrize(("version", "new"), since("0.16"))
def test_whether_scheduling_runs_ahead(version: str, new: bool) -> None:
    w = draw_case(Random(3)).workload
    settings = EngineSettings(engine_version=version, num_gpu_blocks=500)
    assert resolve(settings, w).async_scheduling is new
    assert resolve(settings.replace(async_scheduling=not new), w).async_scheduling is not new
    a = replay(w, settings, step_index()).steps
    b = replay(w, settings.replace(async_scheduling=new), step_index()).steps
    assert np.array_equal(a["free"], b["free"])


@pytest.mark.parametrize(("version", "new"), since("0.31"))
def test_whether_an_adapter_s_path_counts(version: str, new: bool) -> None:
    """Two paths under one name: one adapter to an old release, two to a new one."""
    requests = [
        request("a", [shared(17)], lora={"name": "x", "id": 1, "path": "/one"}),
        request("b", [shared(17)], 1, 5, lora={"name": "x", "id": 1, "path": "/two"}),
        request("c", [shared(17)], 1, 9),
    ]
    assert run(requests, version=version).requests["hit"].tolist() == [0, 0 if new else 16, 0]


def decisions(result: Run) -> tuple[bytes, bytes, dict[str, int]]:
    assert result.log is not None
    return result.log.events.tobytes(), result.log.keys.tobytes(), result.counters


@pytest.mark.parametrize(("older", "newer"), [("0.16", "0.18"), ("0.20", "0.22"), ("0.22", "0.23"), ("0.31", "0.32")])
def test_neighbours_that_decide_alike(older: str, newer: str) -> None:
    for seed in range(25):
        w = draw_case(Random(40 + seed)).workload
        settings = EngineSettings(num_gpu_blocks=60, block_size=4, max_num_seqs=4, max_num_batched_tokens=64, policy="priority")
        runs = [replay(w, settings.replace(engine_version=version), step_index()) for version in (older, newer)]
        assert decisions(runs[0]) == decisions(runs[1])


def test_each_other_step_changes_something() -> None:
    """With everything left to the release, each line that says it decides differently does so in some run."""
    alike = {"0.18", "0.22", "0.23", "0.32"}
    cases = [draw_case(Random(s)).workload for s in range(200, 260)]
    for older, newer in pairwise(VERSIONS):
        differs = False
        for w in cases:
            for caching in (True, False):
                settings = EngineSettings(
                    num_gpu_blocks=46, block_size=4, max_num_seqs=5, max_num_batched_tokens=64, enable_prefix_caching=caching
                )
                a, b = (replay(w, settings.replace(engine_version=v), step_index()) for v in (older, newer))
                differs |= decisions(a) != decisions(b)
        assert differs is (newer not in alike), f"{older} to {newer}"
