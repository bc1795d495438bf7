"""A run and its workload on disk, exactly."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.events.digests import request_digests
from simkv.replay import replay
from simkv.run_folder import open_run, save_run
from simkv.settings import EngineSettings
from simkv.workload.generators import generate
from simkv.workload.registry import read_bytes
from simkv.workload.store import load_workload, save_workload
from simkv.workload.workload import Workload

SPEC = {
    "name": "mixed",
    "config": {"num_gpu_blocks": 100, "max_num_seqs": 4, "max_model_len": 256},
    "time": {"mode": "virtual", "a": 0.01, "b": 0.001, "c": 0.002},
    "requests": [
        {"id": "é", "arrive": 0.0, "prompt": [{"seed": 1, "n": 40}, [5, 6, 7]], "output_len": 4, "cache_salt": "s", "priority": 2},
        {"id": "b", "arrive": 0.5, "prompt": [{"history": "é"}, {"seed": 3, "n": 9}], "output_len": 5, "lora": {"name": "A", "id": 1}},
    ],
    "actions": [{"at": 0.6, "op": "abort", "id": "b"}],
}


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return list(a) == list(b) if isinstance(a, list) else a == b  # type: ignore[call-overload]


HYBRID = {"num_gpu_blocks": 100, "max_model_len": 256, "hybrid": [{"type": "full"}, {"type": "sliding", "window": 64}]}


@pytest.mark.parametrize("source", ["recorded", "hybrid", "generated"])
def test_a_workload_comes_back_as_it_was(source: str, tmp_path: Path) -> None:
    if source == "recorded":
        workload = read_bytes(json.dumps(SPEC).encode(), "mixed.json")
    elif source == "hybrid":
        workload = read_bytes(json.dumps({**SPEC, "config": HYBRID}).encode(), "mixed.json")
    else:
        workload = generate("multi_turn_chat", requests=40, salts="per tenant")
    save_workload(workload, tmp_path / "w.npz")
    back = load_workload(tmp_path / "w.npz")
    for field in dataclasses.fields(Workload):
        if field.name != "engine":
            assert same(getattr(workload, field.name), getattr(back, field.name)), field.name
    assert EngineSettings.from_mapping(workload.engine) == EngineSettings.from_mapping(back.engine)
    assert request_digests(back, 1, 16) == request_digests(workload, 1, 16)


def test_what_is_no_stored_workload_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    for content in (None, b"", b"PK\x03\x04 not really", b"\x80\x04."):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match="not a stored workload"):
            load_workload(path)
    np.savez(path, arrive=np.zeros(1))
    with pytest.raises(InputError, match="not a stored workload"):
        load_workload(path)
    np.savez(path, **{"texts.json": np.array([{"a": 1}], dtype=object)})
    with pytest.raises(InputError, match="not a stored workload"):
        load_workload(path)


def test_a_run_comes_back_with_its_log(tmp_path: Path) -> None:
    workload = read_bytes(json.dumps(SPEC).encode(), "mixed.json")
    run = replay(workload, EngineSettings(engine_version="0.25"))
    save_run(run, tmp_path / "run", source="mixed.json", seed=0, summary=run.summary())
    saved = open_run(tmp_path / "run")
    assert np.array_equal(saved.requests, run.requests)
    assert run.log is not None
    assert np.array_equal(saved.log().events, run.log.events)
    assert saved.info["resolved"]["profile"]["version"] == "0.25"
    # The release's own hash keys: bare values before 0.31.
    bare = request_digests(workload, 0, 16, tagged=False, lora_path=False)
    assert saved.digests().of(0) == tuple(bare)
    assert bare != request_digests(workload, 0, 16)


def test_a_folder_without_run_json_is_incomplete(tmp_path: Path) -> None:
    run = replay(generate("open_ended", requests=3), EngineSettings(num_gpu_blocks=2000))
    save_run(run, tmp_path, source="g", seed=0, summary={})
    (tmp_path / "run.json").unlink()
    with pytest.raises(InputError, match="no readable run"):
        open_run(tmp_path)
