"""The fleet on the command line: options, files, folders, exports, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from simkv.cli import main
from simkv.events.fleet_log import FleetLog

SMALL = ("replay", "mooncake", "--limit", "120", "--set", "num_gpu_blocks=20000")


def test_a_fleet_from_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--replicas", "3", "--router", "least-load", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finished"] == 120
    assert [r["replica"] for r in found["per_replica"]] == [0, 1, 2]
    assert sum(r["hits"] for r in found["per_replica"]) == found["hits"]
    assert found["ladder"]["ceiling"] >= found["ladder"]["routed"] >= found["ladder"]["delivered"] == found["hits"]


def test_a_fleet_from_a_file_and_what_options_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[fleet]\nreplicas = 2\nrouter = "least-load"\n'
        "[[fleet.overrides]]\nreplica = 1\nnum_gpu_blocks = 9000\n"
        '[[fleet.operations]]\nkind = "fail"\nat = 5.0\nreplica = 0\ndown_s = 3.0\n'
    )
    assert main([*SMALL, "--fleet", str(file), "--replicas", "3"]) == 0
    out = capsys.readouterr().out
    assert "on 3 replicas behind least-load" in out
    assert "failed" in out
    assert "where the hit rate goes" in out


def test_a_fleet_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main([*SMALL, "--replicas", "2", "--router", "least-load", "--operation", "deploy,at=10,startup_s=2", "--out", str(folder)]) == 0
    log = FleetLog.load(folder / "events")
    assert len(log.replicas) == 2
    with (folder / "decisions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(log.decisions) == 120
    assert {"score_0", "score_1", "branch", "inflight"} <= set(rows[0])
    times = log.order()["time"]
    assert (times[1:] >= times[:-1]).all()
    with (folder / "requests.csv").open() as file:
        assert {row["replica"] for row in csv.DictReader(file)} == {"0", "1"}
    target = tmp_path / "events.jsonl"
    assert main(["export", str(folder), "--format", "jsonl", "--replica", "1", "--out", str(target)]) == 0
    assert target.stat().st_size > 1000
    capsys.readouterr()
    assert main(["export", str(folder), "--format", "jsonl", "--out", str(target)]) == 2
    assert "fleet of 2 replicas" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--router", "nonsense"], "router=nonsense: allowed is"),
        (["--replicas", "0"], "replicas=0: allowed is a whole number from 1"),
        (["--router", "least-load", "--router-set", "nonsense=1"], "nonsense=1: allowed is"),
        (["--operation", "explode,at=1"], "kind=explode: allowed is deploy, fail, add, remove"),
        (["--operation", "fail,at=1"], "operations.replica=None: allowed is the number of a replica"),
        (["--operation", "fail,at=1,replica=7"], "operations.replica=7: allowed is a replica of the fleet: 0 to 0"),
        (["--operation", "deploy,at"], "expected NAME=VALUE"),
        (["--fleet-set", "event_lag_s=-1"], "event_lag_s=-1"),
        (["--fleet", "no-such.toml"], "no-such.toml: cannot be read as TOML"),
    ],
)
def test_what_cannot_be_is_one_sentence(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
