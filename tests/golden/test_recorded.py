"""The recorded runs come out exactly, and the comparison notices when they do not."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.cli import main
from simkv.conformance import RunResult, run_conformance
from simkv.conformance.live import check_live
from simkv.conformance.vllm_log import TOTALS, check_recording
from simkv.errors import InputError
from simkv.replay import replay
from simkv.workload.registry import read_workload

HERE = Path(__file__).parent
INPUTS = sorted((HERE / "vllm").glob("*.input.json*"))
Record = dict[str, Any]


def name_of(path: Path) -> str:
    return path.name.split(".input.json")[0]


def log_of(path: Path) -> Path:
    return path.with_name(name_of(path) + ".log.jsonl.gz")


def test_all_are_here() -> None:
    assert len(INPUTS) == 48
    assert all(log_of(path).exists() for path in INPUTS)


@pytest.mark.parametrize("path", INPUTS, ids=name_of)
def test_recorded_run_is_exact(path: Path) -> None:
    result = check_recording(path, log_of(path))
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    with gzip.open(log_of(path), "rt") as log:
        steps = sum(json.loads(line)["k"] == "step" for line in log)
    assert result.compared > 10 * steps


def test_bench_ends_with_the_engine_s_own_totals() -> None:
    run = replay(read_workload(HERE / "bench" / "bench.input.json.gz"), events=False)
    c = run.counters
    assert (c["turns"], c["tokens"], c["queries"], c["hits"]) == (1_820, 1_886_663, 4_181_572, 2_687_504)
    assert (c["stored"], c["removed"], c["preemptions"], c["finished"]) == (117_000, 93_002, 0, 2_000)
    assert round(run.end_time_s, 5) == 152.89052


@pytest.mark.parametrize("name", ["live_seq_public", "live_seq_salts_public"])
def test_requests_one_after_another_come_out_as_the_server_did(name: str) -> None:
    check = check_live(HERE / "vllm_live" / f"{name}.json.gz")
    assert check is not None
    result = check()
    assert result.first_difference is None, result.first_difference.sentence()
    assert (result.exact, result.reported) == (True, False)
    assert result.compared > 100


def test_a_closed_loop_is_reported_not_judged() -> None:
    check = check_live(HERE / "vllm_live" / "live_decay_public.json.gz")
    assert check is not None
    result = check()
    assert (result.exact, result.reported) == (False, True)
    assert abs(result.details["difference"]) < 0.03
    windows = result.details["windows"]
    assert len(windows) == 9
    assert all(w["difference"] == pytest.approx(w["replayed"] - w["recorded"]) for w in windows)


# Altered recordings


def records_of(name: str) -> list[Record]:
    with gzip.open(HERE / "vllm" / f"{name}.log.jsonl.gz", "rt") as log:
        return [json.loads(line) for line in log]


def write(folder: Path, name: str, records: list[Record]) -> tuple[Path, Path]:
    """The input as it is beside an altered log."""
    source = next(p for p in INPUTS if name_of(p) == name)
    shutil.copy(source, folder / source.name)
    log = folder / f"{name}.log.jsonl"
    log.write_text("\n".join(map(json.dumps, records)))
    return folder / source.name, log


def check_altered(folder: Path, name: str, records: list[Record]) -> RunResult:
    return check_recording(*write(folder, name, records))


def digit(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


def swap(items: list[Any]) -> list[Any]:
    return [items[1], items[0], *items[2:]]


ALTERED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("03_eviction_lru", "add", lambda x: ["other", *x[1:]]),
    ("03_eviction_lru", "sched", lambda x: [[*x[0][:3], x[0][3] + 1], *x[1:]]),
    ("03_eviction_lru", "sched", lambda x: [[*x[0][:2], x[0][2] + 4, x[0][3]], *x[1:]]),
    ("03_eviction_lru", "sched", lambda x: [[x[0][0], "R" if x[0][1] == "C" else "C", *x[0][2:]], *x[1:]]),
    ("03_eviction_lru", "sched", lambda x: [*x, ["ghost", "C", 1, 1]]),
    ("03_eviction_lru", "nb", lambda x: {k: [v[0] + 1, *v[1:]] for k, v in x.items()}),
    ("03_eviction_lru", "fqd", lambda x: x ^ 1),
    ("03_eviction_lru", "fqd2", lambda x: x ^ 1),
    ("03_eviction_lru", "fq", swap),
    ("03_eviction_lru", "fq2", swap),
    ("03_eviction_lru", "free", lambda x: x + 1),
    ("03_eviction_lru", "free2", lambda x: x - 1),
    ("03_eviction_lru", "usage", lambda x: x + 1e-6),
    ("03_eviction_lru", "usage2", lambda x: x + 1e-6),
    ("03_eviction_lru", "ref", lambda x: {**x, next(iter(x)): 7}),
    ("03_eviction_lru", "tab", lambda x: {k: [9999, *v[1:]] for k, v in x.items()}),
    ("03_eviction_lru", "run", lambda x: [*x, "ghost"]),
    ("03_eviction_lru", "wait", lambda x: [*x, "ghost"]),
    ("03_eviction_lru", "fin", lambda x: x[:-1]),
    ("03_eviction_lru", "out", lambda x: {k: v + 1 for k, v in x.items()}),
    ("03_eviction_lru", "cached2", lambda x: x + 1),
    ("03_eviction_lru", "pc", lambda x: {**x, "hits": x["hits"] + 1}),
    ("03_eviction_lru", "pc", lambda x: {**x, "preempted_queries": 5}),
    ("03_eviction_lru", "evn", lambda x: [x[0] + 1, *x[1:]]),
    ("03_eviction_lru", "evn", lambda x: [x[0], x[1] + 1, x[2]]),
    ("03_eviction_lru", "ev", lambda x: [[x[0][0], [digit(x[0][1][0]), *x[0][1][1:]], *x[0][2:]], *x[1:]]),
    ("03_eviction_lru", "ev", lambda x: x[1:]),
    ("04_preemption_recompute", "pre", lambda x: [*x, "ghost"]),
    ("05_cache_salt", "ev", lambda x: [[*x[0][:-1], [["salted"], *x[0][-1][1:]]], *x[1:]]),
    ("12_reset_prefix_cache", "act", lambda x: [[x[0][0], not x[0][1], x[0][2]], *x[1:]]),
    ("20_abort", "act", lambda x: [[*x[0][:2], 1 - x[0][2]]]),
    ("21_async_basic", "upd", lambda x: x + 1),
    ("23_virtual_time", "t", lambda x: x + 1e-6),
    ("23_virtual_time", "dur", lambda x: x + 1e-6),
    ("26_hybrid_full_swa", "ev", lambda x: [[*x[0][:-1], x[0][-1] + 1], *x[1:]]),
    ("26_hybrid_full_swa", "tab", lambda x: {k: [v[0], [9999, *v[1][1:]]] for k, v in x.items()}),
    ("R3_random_async_priority", "fqd", lambda x: x + 1),
    ("R3_random_async_priority", "wait", swap),
]


@pytest.mark.parametrize(("name", "field", "change"), ALTERED, ids=[f"{n[:2]}-{f}-{i}" for i, (n, f, _) in enumerate(ALTERED)])
def test_an_altered_record_is_noticed(name: str, field: str, change: Callable[[Any], Any], tmp_path: Path) -> None:
    """The first record after which ``field`` is worth changing is changed; the check names step and field."""
    records = records_of(name)
    for record in records[len(records) // 3 :] + records:
        value = record.get(field)
        if value is None or (isinstance(value, list | dict) and len(value) < (2 if change is swap else 1) and field not in ("pre", "wait")):
            continue
        changed = change(copy.deepcopy(value))
        assert changed != value
        record[field] = changed
        break
    result = check_altered(tmp_path, name, records)
    assert not result.exact
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.field) == (record["s"], field)
    assert field in result.first_difference.sentence()


@pytest.mark.parametrize("total", [*TOTALS, "t_end"])
def test_an_altered_total_is_noticed(total: str, tmp_path: Path) -> None:
    records = records_of("23_virtual_time")
    assert records[-1]["k"] == "end"
    records[-1][total] += 1
    result = check_altered(tmp_path, "23_virtual_time", records)
    assert result.first_difference is not None
    assert total in result.first_difference.field
    assert result.first_difference.step is None


def test_a_missing_record_is_noticed(tmp_path: Path) -> None:
    records = records_of("03_eviction_lru")
    del records[10]
    result = check_altered(tmp_path, "03_eviction_lru", records)
    assert result.first_difference is not None
    assert result.first_difference.field == "s"


def test_a_turn_too_many_is_noticed(tmp_path: Path) -> None:
    records = records_of("03_eviction_lru")
    records.insert(-1, {**records[-2], "s": records[-2]["s"] + 1})
    assert not check_altered(tmp_path, "03_eviction_lru", records).exact


def test_a_cut_recording_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="end record"):
        check_altered(tmp_path, "03_eviction_lru", records_of("03_eviction_lru")[:-1])


def test_a_damaged_line_has_a_number(tmp_path: Path) -> None:
    source, log = write(tmp_path, "03_eviction_lru", records_of("03_eviction_lru"))
    log.write_text(log.read_text().replace('"k": "step"', '"k": step', 1))
    with pytest.raises(InputError, match="line 2"):
        check_recording(source, log)


def test_an_altered_server_recording_is_noticed(tmp_path: Path) -> None:
    with gzip.open(HERE / "vllm_live" / "live_seq_public.json.gz", "rt") as text:
        recording = json.load(text)
    recording["results"][5]["cached_tokens"] += 32
    path = tmp_path / "live.json"
    path.write_text(json.dumps(recording))
    check = check_live(path)
    assert check is not None
    result = check()
    assert not result.exact
    assert result.first_difference is not None
    assert "cached_tokens of request" in result.first_difference.field


def test_the_command_says_so_with_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = records_of("02_boundary_misalignment")
    write(tmp_path, "02_boundary_misalignment", records)
    assert main(["conformance", str(tmp_path)]) == 0
    records[3]["free"] += 1
    write(tmp_path, "02_boundary_misalignment", records)
    assert main(["conformance", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "1 of 1 runs exact" in out
    assert f"differs: step {records[3]['s']}, free: recorded {records[3]['free']}" in out
    assert "0 of 1 runs exact" in out


def test_every_recording_below_a_folder_is_found(tmp_path: Path) -> None:
    for name, folder in (("01_shared_system_prompt", "a"), ("02_boundary_misalignment", "b/c")):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder, name, records_of(name))
    shutil.copy(HERE / "vllm_live" / "live_seq_public.json.gz", tmp_path)
    shutil.copy(HERE / "bench" / "bench.input.json.gz", tmp_path)  # an input without a log is no recording
    seen: list[RunResult] = []
    results = run_conformance(tmp_path, seen.append)
    assert seen == results
    assert [r.name for r in results] == ["01_shared_system_prompt", "02_boundary_misalignment", "live_seq_public"]
    assert all(r.exact for r in results)


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recorded run"):
        run_conformance(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        run_conformance(tmp_path / "missing")


def test_recordings_of_a_host_tier_are_named_not_judged(tmp_path: Path) -> None:
    records = records_of("03_eviction_lru")
    records[0]["connector"] = "OffloadingConnector"
    result = check_altered(tmp_path, "03_eviction_lru", records)
    assert (result.reported, result.exact) == (True, False)
    assert "OffloadingConnector" in result.note


def test_replays_of_recordings_are_deterministic() -> None:
    path = HERE / "vllm" / "R5_random_hybrid.input.json.gz"
    a, b = replay(read_workload(path)), replay(read_workload(path))
    assert a.log is not None
    assert b.log is not None
    assert np.array_equal(a.log.events, b.log.events)
    assert np.array_equal(a.log.keys, b.log.keys)


def test_a_recording_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    for path in INPUTS[:3]:
        shutil.copy(path, tmp_path)
        shutil.copy(log_of(path), tmp_path)
    second = tmp_path / log_of(INPUTS[1]).name
    with gzip.open(second, "rt") as log:
        lines = log.readlines()
    with gzip.open(second, "wt") as log:
        log.writelines(lines[:-1])
    results = run_conformance(tmp_path)
    assert [r.exact for r in results] == [True, False, True]
    assert results[1].first_difference is not None
    assert "stops before its end record" in results[1].first_difference.sentence()


def test_recordings_without_kv_events(tmp_path: Path) -> None:
    """With kv_events off the engine publishes nothing, so the recording counts none."""
    path, log = INPUTS[0], tmp_path / "quiet.log.jsonl"
    shutil.copy(path, tmp_path / "quiet.input.json")
    with gzip.open(log_of(path), "rt") as lines:
        records = [json.loads(line) for line in lines]
    records[0]["config"]["kv_events"] = False
    for record in records[1:]:
        record.update({k: v for k, v in {"ev": [], "evn": [0, 0, 0]}.items() if k in record})
        record.update({k: 0 for k in ("stored_blocks", "removed_blocks") if k in record})
    log.write_text("\n".join(map(json.dumps, records)))
    assert check_recording(tmp_path / "quiet.input.json", log).exact
