"""What the recordings of vllm-router and of Ray Serve hold beside the worker is compared as well."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult
from simkv.conformance.routers import check_router

HERE = Path(__file__).parent
RECORDINGS = sorted(p for folder in ("vllm_router", "ray_serve_llm") for p in HERE.glob(f"routers*/{folder}/*.json.gz"))
Recording = dict[str, Any]


def check(path: Path) -> RunResult:
    found = check_router(path)
    assert found is not None
    return found()


def load(name: str) -> Recording:
    with gzip.open(HERE / "routers" / f"{name}.json.gz", "rt") as stream:
        recording: Recording = json.load(stream)
    return recording


def altered(folder: Path, recording: Recording) -> str:
    """The field in which an altered recording differs."""
    path = folder / "altered.json"
    path.write_text(json.dumps(recording))
    difference = check(path).first_difference
    return difference.field if difference is not None else ""


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: f"{p.parent.name}/{p.name.split('.')[0]}")
def test_recording_is_exact(path: Path) -> None:
    result = check(path)
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact


def test_they_are_here() -> None:
    assert len([p for p in RECORDINGS if p.parent == HERE / "routers" / "vllm_router"]) == 14
    assert len([p for p in RECORDINGS if p.parent == HERE / "routers" / "ray_serve_llm"]) == 9
    assert len([p for p in RECORDINGS if p.parent == HERE / "routers_more" / "vllm_router"]) == 26
    assert len([p for p in RECORDINGS if p.parent == HERE / "routers_more" / "ray_serve_llm"]) == 12


def test_the_random_days_hold_what_their_list_says() -> None:
    steps = {p.parent.name: [] for p in RECORDINGS}
    for path in RECORDINGS:
        if path.parent.parent.name == "routers_more":
            steps[path.parent.name] += load(f"../routers_more/{path.parent.name}/{path.name.split('.')[0]}")["steps"]
    ops = {folder: {s["op"] for s in some} for folder, some in steps.items()}
    assert all(op >= {"route", "finish", "evict", "add_worker", "remove_worker"} for op in ops.values())
    assert sum("tokens" in s for s in steps["vllm_router"]) > 300
    assert sum(s.get("note") == "render not usable" for s in steps["vllm_router"]) > 20
    assert sum("error" in s for s in steps["ray_serve_llm"]) > 10
    assert sum("messages" in s for s in steps["ray_serve_llm"]) > 100
    assert sum(s["op"] == "evict" and s["sizes_before"] != s["sizes_after"] for s in steps["ray_serve_llm"]) > 30


@pytest.mark.parametrize("name", ["vllm_router/ca_random_1", "vllm_router/ca_ties", "ray_serve_llm/cold_smallest_tree"])
def test_another_worker_is_a_difference(name: str, tmp_path: Path) -> None:
    recording = load(name)
    step = [s for s in recording["steps"] if s["op"] == "route"][-1]
    step["worker"] = next(w for w in recording["workers"] if w != step["worker"])
    assert altered(tmp_path, recording) == "worker"


@pytest.mark.parametrize("name", ["vllm_router/ca_eviction", "ray_serve_llm/eviction_100_60"])
@pytest.mark.parametrize("field", ["sizes_before", "sizes_after"])
def test_tree_sizes_are_compared(name: str, field: str, tmp_path: Path) -> None:
    recording = load(name)
    [s for s in recording["steps"] if s["op"] == "evict"][-1][field]["w0"] += 1
    assert altered(tmp_path, recording) == field


def test_what_vllm_router_matched_is_compared(tmp_path: Path) -> None:
    recording = load("../routers_more/vllm_router/ca_ids_1")
    for step in recording["steps"]:
        if step.get("match_rate"):
            step["match_rate"] -= 0.001
    assert altered(tmp_path, recording) == "match_rate"


@pytest.mark.parametrize("name", ["consistent_hash", "sticky", "rr"])
def test_no_other_worker_will_do(name: str, tmp_path: Path) -> None:
    recording = load(f"../routers_more/vllm_router/{name}")
    step = [s for s in recording["steps"] if s["op"] == "route"][-1]
    step["worker"] = next(w for w in step["inflight_before"] if w != step["worker"])
    assert altered(tmp_path, recording) == "worker"


@pytest.mark.parametrize("field", ["queue_before", "tree_chars_before", "matched_chars", "matched_owners", "smallest", "candidates"])
def test_what_ray_compared_is_compared(field: str, tmp_path: Path) -> None:
    recording = load("ray_serve_llm/random_1")
    step = [s for s in recording["steps"] if s["op"] == "route" and s["candidates"] == ["w0"]][-1]
    old = step[field]
    step[field] = old + 1 if isinstance(old, int) else {**old, "w0": old["w0"] + 1} if isinstance(old, dict) else ["w3", "w2"]
    assert altered(tmp_path, recording) == field
