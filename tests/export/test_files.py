"""What the exported files hold, read back by other programs' readers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from simkv.errors import InputError
from simkv.events.digests import Digests
from simkv.events.export import parquet
from simkv.events.export.chrome import write_chrome
from simkv.events.export.jsonl import write_jsonl
from simkv.events.export.parquet import write_parquet
from simkv.events.layout import FINISHED, KIND_MASK, KIND_NAMES, PREEMPTED


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_parquet_holds_every_row(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 1000)  # several row groups, so that keys must carry over
    target = tmp_path / "new folder" / "events.parquet"
    assert write_parquet(run.log, run.workload, target, info={"source": "x"}) == len(run.log.events)
    table = pq.read_table(target)
    events = run.log.events
    assert table.num_rows == len(events)
    assert table["kind"].to_pylist() == [KIND_NAMES[k & KIND_MASK] for k in events["kind"].tolist()]
    assert table["request"].to_pylist() == [run.workload.id(i) for i in events["req"].tolist()]
    keys = [k for k in table["key"].to_pylist() if k is not None]
    assert keys == run.log.keys.tolist()
    block, arg = table["block"].to_pylist(), table["arg"].to_pylist()
    assert all(b is None or a is None for a, b in zip(arg, block, strict=True))
    scheduled = sum(a for a, k in zip(arg, table["kind"].to_pylist(), strict=True) if k == "scheduled")
    assert scheduled == run.summary()["scheduled_tokens"]
    assert np.array_equal(
        np.bincount(table["step"].to_numpy(), minlength=len(run.steps)), np.diff([*run.steps["first_event"], len(events)])
    )
    assert json.loads(table.schema.metadata[b"simkv"])["source"] == "x"


def test_jsonl_holds_kv_events_and_placement(run: Any, digests: Digests, tmp_path: Path) -> None:
    target = tmp_path / "events.jsonl"
    count = write_jsonl(run.log, digests, target, info={"source": "x"})
    header, *events = lines_of(target)
    assert (header["event"], header["source"], header["num_blocks"]) == ("header", "x", 230)
    assert len(events) == count
    counts = Counter(e["event"] for e in events)
    kinds = Counter(KIND_NAMES[k & KIND_MASK] for k in run.log.events["kind"].tolist())
    assert {name: counts[name] for name in kinds} == kinds
    assert sum(len(e["block_hashes"]) for e in events if e["event"] == "BlockStored") == run.summary()["stored_blocks"]
    assert sum(len(e["block_hashes"]) for e in events if e["event"] == "BlockRemoved") == run.summary()["removed_blocks"]
    assert all(isinstance(e["block"], int) for e in events if e["event"] == "hit")


def test_jsonl_can_be_reduced(run: Any, digests: Digests, tmp_path: Path) -> None:
    whole, short = tmp_path / "whole.jsonl", tmp_path / "short.jsonl"
    write_jsonl(run.log, digests, whole)
    write_jsonl(run.log, digests, short, placement=False, tokens=False)
    names = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
    expected = [{k: v for k, v in e.items() if k != "token_ids"} for e in lines_of(whole) if e["event"] in names]
    assert lines_of(short)[1:] == expected


def test_chrome_trace_is_balanced_and_complete(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    left_out = write_chrome(run.log, run.workload, run.requests, target)
    trace = json.loads(target.read_text())
    events = trace["traceEvents"]
    assert left_out["requests_left_out"] == left_out["steps_left_out"] == 0
    assert all(e["ts"] >= 0 and e.get("dur", 0) >= 0 for e in events if e["ph"] != "M")
    open_slices: dict[str, list[str]] = {}
    for e in events:
        if e["ph"] == "b":
            open_slices.setdefault(e["id"], []).append(e["name"])
        elif e["ph"] == "e":
            assert open_slices[e["id"]].pop() == e["name"]
    assert len(open_slices) == len(run.workload)
    assert not any(open_slices.values())
    kinds = run.log.events["kind"] & KIND_MASK
    assert sum(e["ph"] == "i" for e in events) == int((kinds == PREEMPTED).sum())
    busy = (run.steps["prefill"] > 0) | (run.steps["decode"] > 0)
    assert sum(e["ph"] == "X" for e in events) == int(busy.sum())
    assert {e["name"] for e in events if e["ph"] == "C"} == {"KV cache usage", "requests"}
    assert all(0 <= e["args"]["usage"] <= 1 for e in events if e["name"] == "KV cache usage")
    assert sum(e["name"] == "decode" and e["ph"] == "b" for e in events) == int((kinds == FINISHED).sum())


def test_chrome_trace_says_what_it_leaves_out(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    left_out = write_chrome(run.log, run.workload, run.requests, target, max_requests=5, max_steps=50)
    trace = json.loads(target.read_text())
    assert len({e["id"] for e in trace["traceEvents"] if e["ph"] == "b"}) == left_out["requests"] == 5
    assert left_out["requests_left_out"] == len(run.workload) - 5
    assert left_out["steps"] <= 50
    assert trace["otherData"]["requests_left_out"] == left_out["requests_left_out"]


def test_a_failed_export_leaves_the_old_file(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_parquet(run.log, run.workload, target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
