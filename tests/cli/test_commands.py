"""The other commands, exit codes and pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simkv.cli import COMMANDS, build_parser, main
from simkv.commands import app
from simkv.commands.lists import LISTS
from simkv.commands.progress import Watch
from simkv.conformance.result import Difference, RunResult

ROOT = Path(__file__).resolve().parents[2]
CHAT = "generator:multi_turn_chat?requests=20&rate=10"
SMALL = ("--set", "num_gpu_blocks=2000", "--set", "max_num_seqs=8")


def simkv(*args: str, **more: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "simkv", *args]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    "command", [[], ["replay"], ["conformance"], ["bench"], ["bench", "replay"], ["export"], ["transfer"], ["app"], *([n] for n in LISTS)]
)
def test_help_teaches(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "usage: simkv" in text
    if command and command[0] in ("replay", "conformance", "export", "transfer", "app"):
        assert "examples:" in text


@pytest.mark.parametrize(
    "args", [[], ["frobnicate"], ["replay"], ["replay", CHAT, "--engine", "other"], ["export", "x", "--format", "xml"]]
)
def test_a_wrong_line_is_bad_input(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    assert "usage: simkv" in capsys.readouterr().err


@pytest.mark.parametrize("name", LISTS)
def test_lists_for_people_and_machines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    text = capsys.readouterr().out
    assert main([name, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 2
    key = "version" if name == "profiles" else "name"
    assert all(row[key] in text for row in rows)
    assert "<function" not in text


def test_formats_show_their_fields_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats"]) == 0
    text = capsys.readouterr().out
    assert "mooncake: Mooncake" in text
    assert "  fields: timestamp, input_length, output_length, hash_ids\n    {" in text
    assert "  bundled: mooncake_conversation" in text


def test_every_command_is_reachable() -> None:
    text = build_parser().format_help()
    assert all(name in text for name in (*COMMANDS, *LISTS) if name != "lists")


def test_conformance_says_exact_or_where_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = RunResult("fine", True, 100)
    wrong = RunResult("wrong", False, 7, Difference("wrong", 3, "free", 12, 11))
    found = [fine, wrong]

    def run_conformance(folder: Path, on_result: Callable[[RunResult], None] | None = None) -> list[RunResult]:
        assert folder == tmp_path
        for result in found:
            if on_result is not None:
                on_result(result)
        return found

    monkeypatch.setattr("simkv.conformance.run_conformance", run_conformance)
    assert main(["conformance", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "fine: exact\nwrong: differs: step 3, free: recorded 12, replayed 11\n1 of 2 runs exact\n"
    assert main(["conformance", str(tmp_path), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["total"], result["exact"]) == (2, 1)
    assert [(r["name"], r["exact"]) for r in result["runs"]] == [("fine", True), ("wrong", False)]
    assert result["runs"][0]["first_difference"] is None
    assert result["runs"][1]["first_difference"] == {"run": "wrong", "step": 3, "field": "free", "expected": 12, "got": 11}
    found.remove(wrong)
    assert main(["conformance", str(tmp_path)]) == 0


def test_conformance_of_nothing_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize("events", ["off", "on"])
def test_bench_reports_speed_and_totals(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", CHAT, *SMALL, "--repeat", "3", "--events", events, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["requests_per_s"] == pytest.approx(20 / result["wall_s"])
    assert result["steps_per_s"] > 0
    assert result["totals"]["requests"] == result["totals"]["finished"] == 20
    assert len(result["all_wall_s"]) == 3
    assert {"load_s", "compile_s", "cpu_s", "end_time_s"} <= set(result)
    assert main(["bench", "replay", CHAT, *SMALL, "--repeat", "1"]) == 0
    assert "per second" in capsys.readouterr().out


def test_bench_without_a_repeat_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", CHAT, "--repeat", "0"]) == 2
    assert "--repeat is 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        ["app", "--no-browser", "--port", "65536"],
        ["export", "nowhere", "--format", "chrome", "--out", "x", "--max-requests", "-5"],
    ],
)
def test_a_number_out_of_range_is_bad_input(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert f"{line[-2]} is {line[-1]}; expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "{", '{"format": 99}'])
def test_export_of_no_run_is_bad_input(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert main(["export", str(tmp_path), "--format", "jsonl", "--out", str(tmp_path / "x")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_the_app_listens_on_this_machine_only() -> None:
    line = app.command(None, "127.0.0.1", browser=False)
    assert line[1:3] == ["-m", "simkv.ui.serve"]
    assert Path(line[3]).name == "app.py"
    assert "--server.address=127.0.0.1" in line
    assert "--browser.gatherUsageStats=false" in line
    assert not any(part.startswith("--server.port") for part in line)
    assert "--server.port=8600" in app.command(8600, "127.0.0.1", browser=True)


def test_a_closed_pipe_is_quiet() -> None:
    line = f"{sys.executable} -m simkv models | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith("model")


def test_version_and_module() -> None:
    done = simkv("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("simkv ")


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_keeps_what_was_replayed(times: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(watch: Watch, report: object) -> bool:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return not watch.interrupted

    monkeypatch.setattr("simkv.commands.progress._Quiet.__call__", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert main(["replay", CHAT, *SMALL, "--json"]) == 130
    out, err = capsys.readouterr()
    assert "interrupted" in err
    assert signal.getsignal(signal.SIGINT) is before
    if times == 1:
        result = json.loads(out)
        assert result["status"] == "partial"
        assert result["finished"] < result["requests"]
    else:
        assert out == ""
