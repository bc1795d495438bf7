"""The recorded decisions of real routers come out exactly, and the comparison notices when they do not."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult, run_conformance
from simkv.conformance.routers import check_router

HERE = Path(__file__).parent
RECORDINGS = sorted(p for product in ("sglang_router", "smg") for p in HERE.glob(f"routers*/{product}/*.json.gz"))
Recording = dict[str, Any]


def name_of(path: Path) -> str:
    more = "more/" if path.parents[1].name == "routers_more" else ""
    return f"{path.parent.name}/{more}{path.name.split('.')[0]}"


def load(name: str) -> Recording:
    with gzip.open(HERE / "routers" / f"{name}.json.gz", "rt") as stream:
        recording: Recording = json.load(stream)
    return recording


def check(folder: Path, recording: Recording) -> RunResult:
    (folder / "altered.json").write_text(json.dumps(recording))
    (result,) = run_conformance(folder)
    return result


def routes(recording: Recording) -> list[dict[str, Any]]:
    return [step for step in recording["steps"] if step["op"] == "route"]


@pytest.mark.parametrize("path", RECORDINGS, ids=name_of)
def test_recording_is_exact(path: Path) -> None:
    found = check_router(path)
    assert found is not None
    result = found()
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    with gzip.open(path, "rt") as stream:
        assert result.compared >= len(routes(json.load(stream)))


def test_they_are_here() -> None:
    names = {name_of(p) for p in RECORDINGS}
    assert len([n for n in names if n.startswith("sglang_router/")]) == 25 + 12
    assert len([n for n in names if n.startswith("smg/")]) == 20 + 21


@pytest.mark.parametrize("name", ["sglang_router/ca_random_1", "smg/ca_random_1", "sglang_router/rr", "smg/consistent_hashing"])
def test_a_decision_no_rule_allows_is_found(name: str, tmp_path: Path) -> None:
    recording = load(name)
    step = routes(recording)[20]
    others = [w for w in recording["workers"] if w != step["worker"]]
    verdicts = []
    for worker in others:
        altered = copy.deepcopy(recording)
        routes(altered)[20]["worker"] = worker
        result = check(tmp_path, altered)
        verdicts.append(result.exact)
        if not result.exact:
            assert result.first_difference is not None
    assert not all(verdicts)


def test_tree_sizes_are_compared(tmp_path: Path) -> None:
    recording = load("sglang_router/ca_eviction")
    evict = [step for step in recording["steps"] if step["op"] == "evict"][-1]
    evict["sizes_after"]["w0"] += 1
    result = check(tmp_path, recording)
    assert result.first_difference is not None
    assert result.first_difference.field == "sizes_after"


@pytest.mark.parametrize("field", ["branch", "matched_units", "input_units", "credited_units", "inflight_before"])
def test_what_the_debug_log_says_is_compared(field: str, tmp_path: Path) -> None:
    recording = load("smg/ca_shared_prefix_owners")
    step = routes(recording)[-1]
    old = step[field]
    step[field] = {**old, "w0": old["w0"] + 1} if isinstance(old, dict) else old + (1 if isinstance(old, int) else "x")
    result = check(tmp_path, recording)
    assert result.first_difference is not None
    assert result.first_difference.field == field


def test_lots_that_are_none_are_found(tmp_path: Path) -> None:
    recording = load("sglang_router/random")
    for step in routes(recording):
        step["worker"] = "w0"
    result = check(tmp_path, recording)
    assert result.first_difference is not None
    assert "draws of w0" in result.first_difference.field


@pytest.mark.parametrize("name", ["sglang_router/ca_chat", "sglang_router/ca_no_text", "smg/ca_chat", "smg/ca_no_text"])
def test_the_text_matched_follows_from_the_request(name: str, tmp_path: Path) -> None:
    recording = load(name)
    for step in routes(recording):
        step.pop("routing_text", None)
    assert check(tmp_path, recording).exact


def test_errors_are_decisions_too(tmp_path: Path) -> None:
    recording = load("sglang_router/prefix_hash")
    routes(recording)[3]["worker"] = "w1"
    assert not check(tmp_path, recording).exact
    routes(recording)[3]["worker"] = None
    assert check(tmp_path, recording).exact


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"router": "another"}, "unknown router"),
        ({"policy": "magic"}, "unknown policy"),
        ({"steps": [{"op": "dance"}]}, "unknown op"),
        ({"steps": [{"op": "route", "id": "r0", "worker": "w9"}]}, "cannot be understood"),
        ({"steps": 3}, "cannot be understood"),
        ({"config": {"cache_threshold": 7}}, "cache_threshold"),
        ({"config": {"unheard_of": 7}}, "unheard_of"),
    ],
)
def test_what_cannot_be_replayed_ends_in_a_sentence(change: Recording, said: str, tmp_path: Path) -> None:
    result = check(tmp_path, {**load("sglang_router/ca_ties"), **change})
    assert not result.exact
    assert result.first_difference is not None
    assert said in str(result.first_difference.got)


def test_a_cut_file_ends_in_a_sentence(tmp_path: Path) -> None:
    whole = json.dumps(load("sglang_router/ca_ties"))
    (tmp_path / "cut.json").write_text(whole[: len(whole) // 2])
    (result,) = run_conformance(tmp_path)
    assert result.first_difference is not None
    assert "not JSON" in str(result.first_difference.got)


SHARED = HERE.parents[2] / "shared" / "golden" / "routers"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")
@pytest.mark.parametrize(("product", "files"), [("sglang_router", 25), ("smg", 20)])
def test_the_shared_recordings_are_exact(product: str, files: int) -> None:
    results = run_conformance(SHARED / product)
    assert [r.first_difference.sentence() for r in results if r.first_difference is not None] == []
    assert len(results) >= files
