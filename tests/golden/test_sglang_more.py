"""Recordings of our own from SGLang 0.5.23, of settings the first 38 lack (tests/golden/sglang_more/README.md)."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult, run_conformance
from simkv.conformance.sglang_log import check_sglang

HERE = Path(__file__).parent / "sglang_more"
INPUTS = sorted(HERE.glob("*.workload.json"))
Record = dict[str, Any]


def name_of(path: Path) -> str:
    return path.name.removesuffix(".workload.json")


def log_of(path: Path) -> Path:
    return HERE / f"{name_of(path)}.python.jsonl.gz"


def records_of(path: Path) -> list[Record]:
    with gzip.open(log_of(path), "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", INPUTS, ids=name_of)
def test_recorded_run_is_exact(path: Path) -> None:
    result = check_sglang(path, log_of(path))
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    assert result.compared >= 4 * sum(r["ev"] in ("op", "step") for r in records_of(path))


def test_they_hold_what_their_list_says() -> None:
    assert len(INPUTS) == 18
    config = {name_of(p)[:2]: json.loads(p.read_text())["config"] for p in INPUTS}
    steps = {name_of(p)[:2]: [r for r in records_of(p) if r["ev"] == "step"] for p in INPUTS}
    assert {c["page_size"] for c in config.values()} >= {1, 2, 4, 16}
    assert {c["eviction_policy"] for c in config.values()} >= {"lru", "slru", "tlru", "fifo", "filo", "mru"}
    assert config["01"]["eviction_policy_config"] == {"protected_threshold": 3}
    for name in ("02", "11", "12"):
        assert config[name]["enable_mixed_chunk"]
        assert any(len(s["admitted"]) > 1 and s["admitted"][-1]["extend"] == 1 for s in steps[name] if s["kind"] == "prefill")
    for name, least in (("06", 3), ("07", 2)):
        assert sum(len(s.get("retracted", [])) for s in steps[name]) >= least
        assert config[name]["page_size"] == 16
    assert config["07"]["chunked_prefill_size"] % 16
    assert sum(len(s.get("retracted", [])) for s in steps["15"] if s["kind"] == "prefill") == 4
    assert [config[name]["disable_radix_cache"] for name in ("16", "17")] == [True, True]
    assert config["18"]["prefill_max_requests"] == max(len(s.get("admitted", [])) for s in steps["18"]) == 1
    for name in ("13", "14"):
        assert max(len(s.get("queue_order", [])) for s in steps[name]) > 128


def input_of(number: str) -> Path:
    return next(p for p in INPUTS if p.name.startswith(number))


def check(folder: Path, number: str, records: list[Record], tree: str = "python") -> RunResult:
    """The workload beside a log in another form, found by its name."""
    source = input_of(number)
    shutil.copy(source, folder / source.name)
    (folder / f"{name_of(source)}.{tree}.jsonl").write_text("\n".join(map(json.dumps, records)))
    (result,) = run_conformance(folder)
    return result


def without_passes(records: list[Record]) -> list[Record]:
    """What the recording tool writes with snapshots = none."""
    first, last = records[0], {k: v for k, v in records[-1].items() if k != "tree"}
    return [{**first, "cfg": {**first["cfg"], "snapshots": "none"}}, last]


@pytest.mark.parametrize("number", ["01", "05", "06", "12", "14"])
def test_a_log_of_nothing_but_its_summary(number: str, tmp_path: Path) -> None:
    records = without_passes(records_of(input_of(number)))
    assert check(tmp_path, number, records).exact
    for field in ("steps", "prefill_tokens", "hit_tokens", "retractions"):
        altered = [records[0], {**records[1], field: records[1][field] + 1}]
        assert not check(tmp_path, number, altered).exact


def test_operations_without_a_last_record(tmp_path: Path) -> None:
    records = records_of(input_of("09"))
    records[0]["cfg"]["snapshots"] = "none"
    assert check(tmp_path, "09", records[:-1]).exact
    assert not check(tmp_path, "09", records[:-2]).exact


def slots_only(record: Record) -> Record:
    """A record as SGLang's compiled tree allows it: no nodes, only which slot holds which position."""
    if "tree" not in record:
        return record
    places = sorted([slot, n["start"] + i] for n in record["tree"]["nodes"] for i, slot in enumerate(n["slots"]))
    return {**record, "tree": {"rust_slots": places}}


@pytest.mark.parametrize("number", ["04", "09"])
def test_a_log_of_the_compiled_tree(number: str, tmp_path: Path) -> None:
    records = [slots_only(r) for r in records_of(input_of(number))]
    assert check(tmp_path, number, records, "rust").exact
    records[5]["tree"]["rust_slots"] = [[0, 0], *records[5]["tree"]["rust_slots"]]
    assert not check(tmp_path, number, records, "rust").exact
