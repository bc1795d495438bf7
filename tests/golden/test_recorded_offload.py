"""Recorded runs with a host tier, and scripts of its chunk manager, come out exactly; a wrong record is noticed."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from simkv.conformance import run_conformance
from simkv.conformance.offload_manager import manager_scripts
from simkv.conformance.vllm_log import check_recording

HERE = Path(__file__).parent / "vllm_offload"
INPUTS = sorted(HERE.glob("*.input.json"))
SCRIPTS = manager_scripts(HERE / "manager_lru_arc.jsonl.gz")


def name_of(path: Path) -> str:
    return path.name.split(".input.json")[0]


def log_of(path: Path) -> Path:
    return path.with_name(name_of(path) + ".log.jsonl.gz")


def test_all_are_here() -> None:
    assert len(INPUTS) == 48
    assert len(SCRIPTS) == 10


@pytest.mark.parametrize("path", INPUTS, ids=name_of)
def test_recorded_run_is_exact(path: Path) -> None:
    result = check_recording(path, log_of(path))
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    with gzip.open(log_of(path), "rt") as log:
        steps = sum(json.loads(line)["k"] == "step" for line in log)
    assert result.compared > 18 * steps


@pytest.mark.parametrize("number", range(10))
def test_recorded_script_is_exact(number: int) -> None:
    result = SCRIPTS[number]()
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.compared > 1_000 or result.name.startswith("hand")


@pytest.mark.parametrize(
    ("name", "field", "change"),
    [
        ("n01_basic_reload", "ops", lambda v: [*v, ["RS"]]),
        ("n03_lru_evict", "cpu", lambda v: {**v, "evictable": v["evictable"] + 1}),
        ("n07_preemption", "flush", lambda v: [*v, 99]),
        ("s07_preemption", "flush", lambda v: not v),
        ("s09_lazy", "stores", lambda v: [*v, [0, [1], [1]]]),
        ("n05_concurrent_same_prefix", "hold", lambda v: [*v, ["x", "WAITING", 0]]),
        ("n02_aligned_prompt_resident", "xc", lambda v: [v[0], v[1], v[2] + 16, *v[3:]]),
        ("n15_self_describing_events", "ev", lambda v: [*v, ["C"]]),
        ("n10_store_threshold2", "cs", lambda v: {**v, "kv_offload_stores_skipped/()": 17}),
    ],
)
def test_a_wrong_record_is_noticed(tmp_path: Path, name: str, field: str, change) -> None:  # type: ignore[no-untyped-def]
    shutil.copy(HERE / f"{name}.input.json", tmp_path)
    with gzip.open(HERE / f"{name}.log.jsonl.gz", "rt") as log:
        records = [json.loads(line) for line in log]
    at = next(i for i, r in enumerate(records) if r["k"] == "step" and r["s"] >= 3 and field in r)
    records[at][field] = change(records[at][field])
    with gzip.open(tmp_path / f"{name}.log.jsonl.gz", "wt") as log:
        log.writelines(json.dumps(r) + "\n" for r in records)
    (result,) = run_conformance(tmp_path)
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.field) == (records[at]["s"], field)


def test_a_wrong_script_is_noticed(tmp_path: Path) -> None:
    with gzip.open(HERE / "manager_lru_arc.jsonl.gz", "rt") as lines:
        script = json.loads(next(lines))
    at = next(i for i, r in enumerate(script["log"]) if r["op"][0] == "prepare_store" and r["res"])
    script["log"][at]["res"][1][0] += 1
    with gzip.open(tmp_path / "script.jsonl.gz", "wt") as out:
        out.write(json.dumps(script, separators=(",", ":")) + "\n")
    (result,) = run_conformance(tmp_path)
    assert result.first_difference is not None
    assert result.first_difference.step == at
