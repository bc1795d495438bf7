"""Dynamo's recorded decisions come out exactly, with overlap, loads and costs; a changed recording is noticed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult
from simkv.conformance.routers import check_router
from simkv.errors import InputError

HERE = Path(__file__).parent
SHARED = HERE / "routers" / "dynamo"
RECORDINGS = sorted(HERE.glob("routers*/dynamo/*.json.gz"))


def check(path: Path) -> RunResult:
    found = check_router(path)
    assert found is not None
    return found()


def load(name: str) -> dict[str, Any]:
    with gzip.open(SHARED / f"{name}.json.gz", "rt") as stream:
        recording: dict[str, Any] = json.load(stream)
    return recording


def altered(folder: Path, recording: dict[str, Any]) -> str:
    path = folder / "altered.json"
    path.write_text(json.dumps(recording))
    difference = check(path).first_difference
    return difference.field if difference is not None else ""


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: f"{p.parent.parent.name}/{p.name.split('.')[0]}")
def test_recording_is_exact(path: Path) -> None:
    result = check(path)
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact


def test_they_are_here() -> None:
    assert len([p for p in RECORDINGS if p.parent == SHARED]) == 17


@pytest.mark.parametrize("field", ["loads_before", "potential", "overlap_blocks", "longest_matched", "logit"])
@pytest.mark.parametrize("name", ["random_trace", "lifecycle", "mix_decay_1", "approx_no_kv_events", "membership"])
def test_every_number_is_compared(name: str, field: str, tmp_path: Path) -> None:
    recording = load(name)
    step = [s for s in recording["steps"] if s["op"] == "route"][-1]
    old = step[field]
    worker = str(step["worker"])
    if isinstance(old, dict):
        step[field] = {
            **old,
            worker: [old[worker][0], old[worker][1] + 1, old[worker][2]] if isinstance(old[worker], list) else old[worker] + 1,
        }
    else:
        step[field] = old + 0.25
    assert altered(tmp_path, recording) == field


def test_another_worker_is_a_difference(tmp_path: Path) -> None:
    recording = load("overlap_vs_load")
    step = next(s for s in recording["steps"] if s["op"] == "route")
    step["worker"] = 1
    assert altered(tmp_path, recording) == "worker"


def test_an_unknown_variable_is_refused(tmp_path: Path) -> None:
    recording = load("cold_spread")
    recording["config"] = {"DYN_ROUTER_SOMETHING": "1"}
    with pytest.raises(InputError, match="DYN_ROUTER_SOMETHING"):
        altered(tmp_path, recording)
