"""vLLM production-stack's routers: every recorded decision, and that a wrong rule would be noticed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult
from simkv.conformance.router_production_stack import ProductionStackSteps
from simkv.conformance.routers import check_router

HERE = Path(__file__).parent / "routers" / "vllm_production_stack"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "golden" / "routers" / "vllm_production_stack"
MORE = HERE.parents[1] / "routers_more" / "vllm_production_stack"
FILES = sorted(HERE.glob("*.json.gz")) + sorted(MORE.glob("*.json.gz")) + (sorted(SHARED.glob("*.json")) if SHARED.is_dir() else [])


def recording_of(name: str) -> dict[str, Any]:
    with gzip.open(HERE / f"{name}.json.gz", "rt") as stream:
        loaded: dict[str, Any] = json.load(stream)
    return loaded


def result_of(recording: dict[str, Any]) -> RunResult:
    return ProductionStackSteps(recording, "recording.json").run()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.parent.name}-{path.name}")
def test_recorded_decisions(path: Path) -> None:
    check = check_router(path)
    assert check is not None
    result = check()
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact


def test_they_hold_what_they_are_for() -> None:
    counts = {path.name.split(".")[0]: len(recording_of(path.name.split(".")[0])["steps"]) for path in sorted(HERE.glob("*.json.gz"))}
    assert counts == {"prefixaware_min0": 85, "prefixaware_min128": 85, "roundrobin": 20, "session": 124}
    assert len(list(MORE.glob("*.json.gz"))) == 8


def test_rates_are_compared_where_the_time_is_known() -> None:
    with gzip.open(MORE / "random_session_1.json.gz", "rt") as stream:
        recording = json.load(stream)
    assert result_of(recording).compared == 3 * 100
    recording["config"]["request_stats_window"] = 61
    found = result_of(recording).first_difference
    assert found is not None
    assert "qps" in found.sentence()


def test_compared_fields() -> None:
    assert result_of(recording_of("prefixaware_min128")).compared == 3 * 85
    assert result_of(recording_of("session")).compared == 2 * 124


def test_a_different_worker_matched_length_or_set_is_a_difference() -> None:
    wrong = recording_of("prefixaware_min0")
    wrong["steps"][6]["url"] = wrong["steps"][6]["endpoints"][0]
    found = result_of(wrong).first_difference
    assert found is not None
    assert "worker" in found.sentence()
    wrong = recording_of("prefixaware_min0")
    wrong["steps"][12]["match_chars"] = 256
    assert not result_of(wrong).exact
    wrong = recording_of("prefixaware_min128")
    wrong["config"]["prefix_min_match_length"] = 0
    assert not result_of(wrong).exact
    wrong = recording_of("session")
    wrong["steps"][121]["qps"] = dict.fromkeys(wrong["steps"][121]["endpoints"], 1.0)
    assert not result_of(wrong).exact
    wrong = recording_of("roundrobin")
    wrong["steps"] = [s for s in wrong["steps"] if len(s["endpoints"]) == 3][:11]
    wrong["steps"][10]["url"] = wrong["steps"][0]["url"]
    assert not result_of(wrong).exact


def test_prompts_of_another_unit_are_other_prompts() -> None:
    """600 of 640 characters: the last chunk is shorter and matches nothing."""
    steps = recording_of("prefixaware_min0")["steps"]
    short = next(s for s in steps if "600 of 640" in s.get("note", ""))
    assert short["match_chars"] == 512
