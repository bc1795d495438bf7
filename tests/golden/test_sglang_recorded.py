"""Runs recorded from SGLang come out exactly, and the comparison notices when they do not."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance import RunResult, run_conformance
from simkv.conformance.sglang_log import check_sglang
from simkv.errors import InputError, SettingsError

HERE = Path(__file__).parent / "sglang"
INPUTS = sorted(HERE.glob("*.workload.json*"))
Record = dict[str, Any]


def name_of(path: Path) -> str:
    return path.name.split(".workload.json")[0]


def log_of(name: str) -> Path:
    return next(p for s in (".python.jsonl", ".python.jsonl.gz") if (p := HERE / (name + s)).exists())


def records_of(name: str) -> list[Record]:
    log = log_of(name)
    with gzip.open(log, "rt") if log.suffix == ".gz" else log.open() as lines:
        return [json.loads(line) for line in lines]


def check_altered(folder: Path, name: str, records: list[Record]) -> RunResult:
    """The workload as it is beside an altered log."""
    source = next(p for p in INPUTS if name_of(p) == name)
    shutil.copy(source, folder / source.name)
    log = folder / f"{name}.python.jsonl"
    log.write_text("\n".join(map(json.dumps, records)))
    return check_sglang(folder / source.name, log)


def test_all_are_here() -> None:
    assert len(INPUTS) == 38


@pytest.mark.parametrize("path", INPUTS, ids=name_of)
def test_recorded_run_is_exact(path: Path) -> None:
    log = log_of(name_of(path))
    result = check_sglang(path, log)
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    assert result.compared >= 4 * sum(r["ev"] in ("op", "step") for r in records_of(name_of(path)))


def first_node(change: Callable[[Record], None]) -> Callable[[Any], Any]:
    """The same tree with its first node changed."""

    def changed(tree: Any) -> Any:
        change(tree["nodes"][0])
        return tree

    return changed


ALTERED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("07_policy_fcfs", "evicted", lambda x: x[1:]),
    ("07_policy_fcfs", "evicted", lambda x: [{**x[0], "slots": [9999, *x[0]["slots"][1:]]}, *x[1:]]),
    ("07_policy_fcfs", "evicted", lambda x: [{**x[0], "start": x[0]["start"] + 1}, *x[1:]]),
    ("07_policy_fcfs", "queue_order", lambda x: [*x, "ghost"]),
    ("07_policy_fcfs", "admitted", lambda x: [{**x[0], "prefix": x[0]["prefix"] + 1}, *x[1:]]),
    ("07_policy_fcfs", "admitted", lambda x: [{**x[0], "row": [9999, *x[0]["row"][1:]]}, *x[1:]]),
    ("07_policy_fcfs", "admitted", lambda x: [*x, {"rid": "ghost", "prefix": 0, "extend": 1}]),
    ("07_policy_fcfs", "kind", lambda x: "idle" if x != "idle" else "decode"),
    ("07_policy_fcfs", "finished", lambda x: [*x, "ghost"]),
    ("07_policy_fcfs", "batch", lambda x: x[1:]),
    ("07_policy_fcfs", "new_token_ratio", lambda x: x + 1e-6),
    ("07_policy_fcfs", "waiting", lambda x: [*x, "ghost"]),
    ("07_policy_fcfs", "running", lambda x: [*x, "ghost"]),
    ("07_policy_fcfs", "sizes", lambda x: {**x, "evictable": x["evictable"] + 1}),
    ("07_policy_fcfs", "tree", lambda x: {"nodes": x["nodes"][1:]}),
    ("07_policy_fcfs", "tree", first_node(lambda n: n.update(slots=[9999, *n["slots"][1:]]))),
    ("07_policy_fcfs", "tree", first_node(lambda n: n.update(lock_ref=n["lock_ref"] + 1))),
    ("07_policy_fcfs", "tree", first_node(lambda n: n.update(hit_count=n["hit_count"] + 1))),
    ("07_policy_fcfs", "tree", first_node(lambda n: n.update(priority=n["priority"] + 1))),
    ("07_policy_fcfs", "tree", first_node(lambda n: n.update(lru_rank=n["lru_rank"] + 1))),
    ("08_namespaces", "tree", first_node(lambda n: n.update(extra_key="other"))),
    ("09_retract", "retracted", lambda x: [*x, "ghost"]),
    ("03_leaf_first_lru_ops", "matched", lambda x: x + 1),
    ("03_leaf_first_lru_ops", "new", lambda x: x + 1),
    ("03_leaf_first_lru_ops", "got", lambda x: x + 1),
    ("03_leaf_first_lru_ops", "result", lambda x: x + "?"),
    ("05_locked_ops", "sizes", lambda x: {**x, "protected": x["protected"] + 1}),
    ("05_locked_ops", "tree", first_node(lambda n: n.update(lock_ref=n["lock_ref"] + 1))),
]


@pytest.mark.parametrize(("name", "field", "change"), ALTERED, ids=[f"{n[:2]}-{f}-{i}" for i, (n, f, _) in enumerate(ALTERED)])
def test_an_altered_record_is_noticed(name: str, field: str, change: Callable[[Any], Any], tmp_path: Path) -> None:
    records = records_of(name)
    for at, record in enumerate(records[1:], 1):
        if record["ev"] not in ("op", "step") or not record.get(field) or (field == "tree" and not record["tree"]["nodes"]):
            continue
        changed = change(copy.deepcopy(record[field]))
        assert changed != record[field]
        records[at][field] = changed
        break
    result = check_altered(tmp_path, name, records)
    assert not result.exact
    assert result.first_difference is not None
    assert result.first_difference.step == record.get("step", record.get("i"))
    assert field in result.first_difference.field


@pytest.mark.parametrize("field", ["finished", "hit_tokens", "prefill_tokens", "hit_rate", "retractions", "sizes", "tree", "steps"])
def test_an_altered_summary_is_noticed(field: str, tmp_path: Path) -> None:
    records = records_of("09_retract")
    value = records[-1][field]
    records[-1][field] = {"nodes": []} if field == "tree" else {**value, "total": 0} if field == "sizes" else value + 1
    assert not check_altered(tmp_path, "09_retract", records).exact


def test_a_missing_pass_is_noticed(tmp_path: Path) -> None:
    records = records_of("07_policy_fcfs")
    del records[10]
    assert not check_altered(tmp_path, "07_policy_fcfs", records).exact


@pytest.mark.parametrize("name", ["07_policy_fcfs", "04_split_ops"])
def test_a_cut_recording_is_no_recording(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the log stops"):
        check_altered(tmp_path, name, records_of(name)[:-1])


def test_an_unknown_setting_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "x.workload.json").write_text('{"config": {"capacity": 20, "colour": 3}, "ops": []}')
    (tmp_path / "x.python.jsonl").write_text("{}")
    with pytest.raises(SettingsError, match="colour"):
        check_sglang(tmp_path / "x.workload.json", tmp_path / "x.python.jsonl")


def test_recordings_of_both_engines_are_found(tmp_path: Path) -> None:
    for path in (INPUTS[0], log_of(name_of(INPUTS[0]))):
        shutil.copy(path, tmp_path)
    for path in (HERE.parent / "vllm").glob("01_*"):
        shutil.copy(path, tmp_path)
    results = run_conformance(tmp_path)
    assert [(r.name, r.exact) for r in results] == [("01_branching_fewshot", True), ("01_shared_system_prompt", True)]


@pytest.mark.parametrize(
    "op",
    [
        5,
        [],
        ["drop"],
        ["match", "a"],
        ["insert", 1, [2]],
        ["insert", "a", ["x"]],
        ["evict", "a"],
        ["lock"],
        ["match", "a", [1], {"extra_key": 5}],
    ],
)
def test_what_is_no_operation_has_a_place(op: Any, tmp_path: Path) -> None:
    (tmp_path / "x.workload.json").write_text(json.dumps({"ops": [["insert", "a", [1]], op]}))
    (tmp_path / "x.python.jsonl").write_text("{}")
    with pytest.raises(InputError, match=r"ops\[1\]"):
        check_sglang(tmp_path / "x.workload.json", tmp_path / "x.python.jsonl")
