"""``simkv replay`` as people and machines use it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from simkv.cli import main

CHAT = "generator:multi_turn_chat?requests=30&rate=10"
SMALL = ("--set", "num_gpu_blocks=2000", "--set", "max_num_seqs=8")
PROMISED = {
    "requests",
    "finished",
    "steps",
    "scheduled_tokens",
    "queries",
    "hits",
    "hit_rate",
    "preemptions",
    "stored_blocks",
    "removed_blocks",
    "end_time_s",
    "wall_s",
    "peak_rss_mb",
    "ttft_s",
    "itl_s",
    "e2e_s",
}


def replay(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["replay", *args])
    out, err = capsys.readouterr()
    return code, out, err


def summary(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    code, out, err = replay(capsys, *args, "--json")
    assert (code, err) == (0, "")
    result: dict[str, object] = json.loads(out)
    return result


def test_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    result = summary(capsys, CHAT, *SMALL)
    assert set(result) >= PROMISED
    assert result["requests"] == result["finished"] == 30
    assert result["hits"] / result["queries"] == result["hit_rate"]  # type: ignore[operator]
    for name in ("ttft_s", "itl_s", "e2e_s"):
        percentiles = result[name]
        assert isinstance(percentiles, dict)
        assert set(percentiles) == {"p50", "p95", "p99"}
        assert 0 < percentiles["p50"] <= percentiles["p95"] <= percentiles["p99"]


def test_the_same_seed_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    volatile = {"wall_s", "peak_rss_mb", "load_s", "compile_s"}
    first, again, other = (
        {k: v for k, v in summary(capsys, CHAT, *SMALL, "--seed", seed).items() if k not in volatile} for seed in ("1", "1", "2")
    )
    assert first == again != other


def test_people_get_a_sentence_and_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = replay(capsys, CHAT, *SMALL)
    assert (code, err) == (0, "")
    assert "30 of 30 requests finished in" in out
    assert "prompt tokens at first admission, whole run" in out
    assert "pool of 2,000 blocks" in out
    assert "Generated: multi_turn_chat, seed 0" in out


def test_a_run_in_steps_shows_no_seconds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = {
        "name": "tiny",
        "config": {"num_gpu_blocks": 50, "max_model_len": 128, "enable_prefix_caching": False},
        "time": {"mode": "step"},
        "requests": [{"id": f"q{i}", "arrive": i, "prompt": [{"seed": 1, "n": 40}], "output_len": 3} for i in range(3)],
    }
    source = tmp_path / "tiny.input.json"
    source.write_text(json.dumps(spec))
    code, out, _ = replay(capsys, str(source))
    assert code == 0
    assert "time to first token" not in out
    assert summary(capsys, str(source))["ttft_s"] == {"p50": None, "p95": None, "p99": None}
    # The file's own settings hold unless --set names them, even with the value that is the default.
    assert summary(capsys, str(source))["queries"] == 0
    assert summary(capsys, str(source))["hit_rate"] is None
    assert summary(capsys, str(source), "--set", "enable_prefix_caching=true")["hits"] == 64


def test_limit_copies_and_salts(capsys: pytest.CaptureFixture[str]) -> None:
    shared = "generator:shared_system_prompt?requests=20&rate=50"
    assert summary(capsys, shared, *SMALL, "--limit", "5")["requests"] == 5
    assert summary(capsys, shared, *SMALL, "--copies", "3")["requests"] == 60
    shared_hits = summary(capsys, CHAT, *SMALL)["hits"]
    for mode in ("session", "per-session", "per session"):
        assert summary(capsys, CHAT, *SMALL, "--salts", mode)["hits"] < shared_hits  # type: ignore[operator]


def test_bad_rows_are_counted_in_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [{"timestamp": 1000 * i, "input_length": 600, "output_length": 4, "hash_ids": [0, i]} for i in range(4)]
    rows[2]["output_length"] = -3
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, rows)) + "\n")
    code, out, err = replay(capsys, str(trace), *SMALL)
    assert (code, out) == (2, "")
    assert "line 3" in err
    assert "output_length" in err
    code, out, _ = replay(capsys, str(trace), *SMALL, "--skip-bad-rows")
    assert code == 0
    assert "3 of 3 requests finished" in out
    assert "1 of 4 rows were dropped" in out


def test_no_content_means_no_hit_rate(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = replay(capsys, "azure_code_2023", "--limit", "20")
    assert code == 0
    assert "the source says nothing about content" in out
    assert "0.0 %" not in out


def test_a_file_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": "\\u001b[2J", "output_length": 1, "hash_ids": [1]}\n')
    code, _, err = replay(capsys, str(trace))
    assert code == 2
    assert "\x1b" not in err


def test_out_keeps_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    code, out, _ = replay(capsys, CHAT, *SMALL, "--seed", "4", "--out", str(folder))
    assert code == 0
    assert f"Kept in {folder}" in out
    info = json.loads((folder / "run.json").read_text())
    assert (info["source"], info["seed"], info["status"]) == (CHAT, 4, "complete")
    assert info["changed_settings"] == {"num_gpu_blocks": 2000, "max_num_seqs": 8}
    assert info["resolved"]["max_num_seqs"] == 8
    assert info["step_time"]["assumptions"]
    assert set(info["summary"]) >= PROMISED
    with (folder / "requests.csv").open(newline="") as lines:
        requests = list(csv.DictReader(lines))
    assert len(requests) == 30
    assert sum(int(r["cached_tokens"]) for r in requests) == info["summary"]["hits"]
    assert all(float(r["ttft_s"]) > 0 for r in requests)
    with (folder / "metrics.csv").open(newline="") as lines:
        assert len(list(csv.DictReader(lines))) > 1
    for name, ending in (("parquet", "parquet"), ("jsonl", "jsonl"), ("chrome", "json")):
        target = tmp_path / f"events.{ending}"
        assert main(["export", str(folder), "--format", name, "--out", str(target)]) == 0
        assert target.stat().st_size > 1000


def test_out_replaces_a_run_but_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    code, _, err = replay(capsys, CHAT, *SMALL, "--out", str(folder))
    assert code == 2
    assert "holds no run" in err
    assert [p.name for p in folder.iterdir()] == ["letter.txt"]
    again = tmp_path / "again"
    for seed in ("1", "2"):
        assert replay(capsys, CHAT, *SMALL, "--out", str(again), "--seed", seed, "--no-events")[0] == 0
    assert json.loads((again / "run.json").read_text())["seed"] == 2
    assert main(["export", str(again), "--format", "parquet", "--out", str(tmp_path / "x")]) == 2
    assert "no readable event log" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere.jsonl"], "there is no file and no bundled trace nowhere.jsonl"),
        (["azure"], "azure may be azure_code_2023 or azure_conv_2023"),
        (["generator:nonsense"], "generator=nonsense"),
        (["generator:multi_turn_chat?colour=red"], "colour=red"),
        (["generator:multi_turn_chat?requests=many"], "requests=many"),
        (["generator:multi_turn_chat?requests"], "cannot be read"),
        ([CHAT, "--tokenizer", "t.json"], "--tokenizer does not apply to a generator"),
        ([CHAT, "--limit", "0"], "limit=0"),
        ([CHAT, "--copies", "0"], "copies=0"),
        ([CHAT, "--copies", "1000000000000"], "of 30 requests. "),
        ([CHAT, "--salts", "per-planet"], "salts=per-planet: allowed is keep, off, per tenant, per session"),
        (["mooncake", "--limit", "5", "--salts", "tenant"], "none of the bundled traces does"),
        ([CHAT, "--set", "block_size"], "name=value"),
        ([CHAT, "--set", "block_size=zero"], "block_size=zero"),
        ([CHAT, "--set", "blocksize=16"], "blocksize=16"),
        ([CHAT, "--set", "num_gpu_blocks=3"], "max_model_len"),
        ([CHAT, "--set", "model=Llama-9"], "Llama-9"),
        ([CHAT, "--set", 'hybrid=[{typ="full"}]'], "type, window, block_size, layers"),
        ([CHAT, "--set", "hybrid=[1]"], "hybrid=1"),
        ([CHAT, "--set", 'hybrid=[{block_size="x"}]'], "hybrid.block_size=x"),
        ([CHAT, "--set", "engine_version=0.9"], "0.10 or newer; profiles: 0.10, 0.13"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], args: list[str], said: str) -> None:
    code, out, err = replay(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("simkv: ")
    assert err.count("\n") == 1
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("version", ["0.10", "0.18", "0.32"])
def test_a_release_is_a_name_and_no_number(capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str) -> None:
    code, _, err = replay(capsys, CHAT, "--set", f"engine_version={version}", "--out", str(tmp_path / "run"))
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["engine_version"] == version


@pytest.mark.parametrize(("version", "said"), [("0.25", "each attempt anew"), ("0.27", "at first admission")])
def test_what_a_release_counts_is_named(capsys: pytest.CaptureFixture[str], version: str, said: str) -> None:
    assert said in replay(capsys, CHAT, "--set", f"engine_version={version}")[1]


def test_what_a_file_says_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    rows = [good, {**good, "timestamp": "\x1b[31mred\x1b]0;title\x07"}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = replay(capsys, str(tmp_path / "m.jsonl"), "--skip-bad-rows")
    assert code == 0
    assert "1 of 2 rows were dropped as unusable" in out
    assert "\ufffd[31mred" in out
    assert out.replace("\n", "").isprintable()
