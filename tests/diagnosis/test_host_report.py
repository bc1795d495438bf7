"""What a run's host tier did, against counting by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simkv.cli import main
from simkv.diagnosis.host_report import HostReport, host_report
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.registry import read_workload
from tests.engine.hand import VIRTUAL, request, shared, workload

DOCUMENT: dict[str, Any] = {
    "config": {"block_size": 16, "num_gpu_blocks": 21, "max_model_len": 320, "max_num_batched_tokens": 512, "async_scheduling": False},
    "time": VIRTUAL,
    "requests": [
        request("a", [shared(69)], 2),
        request("filler", [shared(310, seed=2)], 2, arrive=1),
        request("again", [shared(69)], 2, arrive=2),
    ],
}
"""The second request pushes the first one's prompt off the device; the third finds it in the host."""


def report(**settings: Any) -> HostReport:
    d = DOCUMENT
    w = workload(d["requests"], time=d["time"], **d["config"])
    found = host_report(replay(w, EngineSettings(kv_offload_num_chunks=40, **settings)))
    assert found is not None
    return found


def test_a_prompt_comes_back_from_the_host() -> None:
    found = report()
    assert (found.external_queries, found.external_hits) == (69 + 310 + 69, 64)
    assert found.rates.device == 0
    assert found.rates.host == pytest.approx(64 / 448)
    assert found.rates.combined == pytest.approx(64 / 448)
    assert found.use.stored == 4 + 19
    assert found.use.refused == found.use.evicted == 0
    assert found.filled is not None
    assert found.filled.largest == pytest.approx(23 / 40)
    assert 0 < found.filled.mean < found.filled.largest
    block = 131_072 * 16
    assert (found.load_bytes, found.store_bytes) == (4 * block, 23 * block)
    assert found.history is not None
    assert found.history.held[-1] == 23
    assert found.history.loading_first.sum() == found.history.loaded.sum() == 4


def test_bytes_go_over_all_links() -> None:
    block = 131_072 * 16
    assert report(tensor_parallel_size=2).load_bytes == 4 * block


def test_a_run_without_a_log_has_no_occupancy() -> None:
    d = DOCUMENT
    w = workload(d["requests"], time=d["time"], **d["config"])
    found = host_report(replay(w, EngineSettings(kv_offload_num_chunks=40), events=False))
    assert found is not None
    assert found.filled is None
    assert found.summary()["host_occupancy_max"] is None
    assert found.use.stored == 23


def test_without_a_tier_there_is_no_report() -> None:
    assert host_report(replay(workload([request("a", 20)]))) is None


def test_simkv_replay_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps(DOCUMENT))
    line = ["replay", str(trace), "--set", "kv_offload_num_chunks=10"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "host hit rate" in text
    assert "vLLM exports no occupancy metric" in text
    assert "Transfers of one direction follow each other" in text
    assert "- 1 prompt of up to 310 tokens is longer than the host tier (160 tokens)" in text
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["external_queries"] == 448
    assert found["host_occupancy_max"] == pytest.approx(0.4)
    assert found["kv_offload_allocation_failure"] > 0
    assert found["host_warnings"]


@pytest.mark.parametrize("name", ["n03_arc_evict", "n07_preemption", "n18_reset_connector_inflight", "s03_evict", "s09_lazy"])
def test_the_log_and_the_counters_agree(name: str) -> None:
    """On recorded runs: what a fold over the log counts is what the engine's counters say."""
    file = Path(__file__).parents[1] / "golden" / "vllm_offload" / f"{name}.input.json"
    run = replay(read_workload(file))
    found = host_report(run)
    assert found is not None
    assert found.history is not None
    assert run.host is not None
    h, size = found.history, found.tier.block_size
    assert (h.stored.sum(), h.removed.sum(), h.loading.sum()) == (run.host["stored"], run.host["removed"], run.host["load_blocks"])
    assert h.loading_first.sum() * size == found.external_hits
    assert 0 < h.held.max() <= found.tier.chunks
    assert found.filled is not None
    assert 0 < found.filled.mean <= found.filled.largest <= 1
