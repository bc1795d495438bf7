"""``simkv scenarios``, and scenarios as a source of other commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simkv.cli import main
from simkv.scenarios import files, scenario_names


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scenarios")
    assert code == 0
    assert all(f"  {name} " in out for name in scenario_names())
    code, out, _ = run(capsys, "scenarios", "--json")
    assert sorted(row["name"] for row in json.loads(out)) == scenario_names()


def test_one_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scenarios", "shorter-than")
    assert code == 0
    assert "blocks of 1,072: As a hybrid model's start-up log announces it." in out
    assert "Hit rate" in out
    assert "ok  No prompt shares a whole block with another one." in out
    assert "3 of 3 expectations hold." in out
    code, out, _ = run(capsys, "scenarios", "shorter_than_a_block", "--json")
    (told,) = json.loads(out)
    assert [v["figures"]["hit_rate"] == 0 for v in told["variants"]] == [True, False, False]
    assert {e["outcome"] for e in told["expected"]} == {"holds"}


def test_an_expectation_that_fails_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = files.scenario_files()["shorter_than_a_block"].read_text(encoding="utf-8")
    bad = tmp_path / "bad.toml"
    bad.write_text(good.replace("equals = 0", "equals = 1"), encoding="utf-8")
    monkeypatch.setattr(files, "scenario_files", lambda: {"bad": bad})
    code, out, _ = run(capsys, "scenarios", "bad")
    assert code == 1
    assert "NO  No prompt shares a whole block with another one." in out
    assert "2 of 3 expectations hold." in out


def test_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "scenarios", "memory")
    assert code == 2
    assert "memory may be memory_pressure or memory_tight" in err
    code, _, err = run(capsys, "scenarios", "four_replica_")
    assert code == 2
    assert "Did you mean four_replicas?" in err
    code, _, err = run(capsys, "replay", "scenario:few_shot/nobody")
    assert code == 2
    assert 'there is no variant nobody; expected one of "vLLM, blocks of 16"' in err
    code, _, err = run(capsys, "replay", "scenario:few_shot", "--seed", "3")
    assert code == 2
    assert "--seed does not apply to a scenario" in err


def test_a_scenario_is_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    """With the variant's own settings unless --set names others; the same figures as the scenario itself."""
    _, out, _ = run(capsys, "replay", "scenario:shorter_than_a_block", "--json")
    assert json.loads(out)["hit_rate"] == 0
    _, out, _ = run(capsys, "replay", "scenario:shorter_than_a_block/blocks-of-16", "--json", "--limit", "100")
    assert json.loads(out)["requests"] == 100
    _, out, _ = run(capsys, "replay", "scenario:shorter_than_a_block", "--set", "block_size=16", "--json")
    assert json.loads(out)["hit_rate"] > 0.8
    code, out, _ = run(capsys, "compare", "scenario:shorter_than_a_block", "default", "block_size=16", "--limit", "200", "--json")
    assert code == 0
    sides = json.loads(out)["sides"]
    assert [s["settings"]["block_size"] for s in sides] == [1072, 16]


def test_a_fleet_comes_with_its_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    """Its replicas, router and operations, unless an option says otherwise."""
    balanced = "scenario:four_replicas/prefix-aware, balanced"
    _, out, _ = run(capsys, "replay", balanced, "--limit", "150", "--json")
    told = json.loads(out)
    assert (told["replicas"], told["router"]) == (4, "sglang-cache-aware")
    assert min(r["requests"] for r in told["per_replica"]) > 0, "its own thresholds balance"
    _, out, _ = run(capsys, "replay", balanced, "--router", "round-robin", "--replicas", "2", "--limit", "150", "--json")
    told = json.loads(out)
    assert [r["requests"] for r in told["per_replica"]] == [75, 75]
