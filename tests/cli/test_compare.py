"""``simkv compare`` as people and machines use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simkv.cli import main
from simkv.comparison import comparison as replays
from simkv.replay import replay

CHAT = "generator:multi_turn_chat?requests=30&rate=10"


def compare(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["compare", *args])
    out, err = capsys.readouterr()
    return code, out, err


def sides(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, str]:
    code, out, err = compare(capsys, *args, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    return {"source": found["source"], **{s["name"]: s["label"] for s in found["sides"]}}


def test_people_get_the_reason_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = compare(capsys, CHAT, "tokens=40000", "tokens=8000", "enable_prefix_caching=false")
    assert (code, err) == (0, "")
    assert "30 requests, the same for each" in out
    assert "B against A: " in out
    assert "C against A: C finds only 0.0 % of prompt tokens cached" in out
    assert "They part after" in out
    assert "Hit rate" in out
    assert "vs A" in out
    assert "Waste" in out


def test_the_words_may_stand_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = "tokens=40000", "block_size=32"
    expected = {"source": CHAT, "A": a, "B": b}
    assert sides(capsys, CHAT, a, b) == expected
    assert sides(capsys, a, b, "--source", CHAT) == expected
    assert sides(capsys, CHAT, "--seed", "0", a, "--limit", "20", b) == expected
    assert sides(capsys, CHAT, "num_gpu_blocks=4000") == {"source": CHAT, "A": "default", "B": "num_gpu_blocks=4000"}


def test_without_a_source_the_bundled_agents_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    found = sides(capsys, "default", "block_size=64", "--limit", "5")
    assert found == {"source": "claude_code", "A": "default", "B": "block_size=64"}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((CHAT, "nonsense", "x"), '"nonsense" is no setting'),
        ((CHAT, "block_size=0", "x=1"), "block_size=0: allowed is"),
        ((CHAT, *["default"] * 5), "1 to 4 settings"),
        (("no_such_trace", "default", "block_size=8"), "there is no file and no bundled trace"),
        ((CHAT, "default", "missing.toml"), "no readable settings"),
        ((CHAT, "tokens=40000", "num_gpu_blocks=3"), "B: max_model_len"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], expected: str) -> None:
    code, out, err = compare(capsys, *args)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_out_keeps_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = compare(capsys, CHAT, "tokens=40000", "tokens=8000", "--out", str(tmp_path / "x"))
    assert code == 0
    assert "comparison.html to read" in out
    assert json.loads((tmp_path / "x" / "comparison.json").read_text())["seed"] == 0
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "z").write_text("")
    code, out, err = compare(capsys, CHAT, "default", "block_size=8", "--out", str(tmp_path / "y"))
    assert (code, out) == (2, "")
    assert "holds no comparison" in err


def test_ctrl_c_keeps_what_is_finished(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    calls = []

    def second_is_interrupted(*args: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return replay(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(replays, "replay", second_is_interrupted)
    code, out, err = compare(capsys, CHAT, "tokens=40000", "tokens=8000", "tokens=20000")
    assert code == 130
    assert "of 3 settings were replayed to the end" in err
    assert "A  tokens=40000" in out


def test_markup_in_a_label_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = compare(capsys, CHAT, "model=\x1b[31mred", "block_size=8")
    assert code == 2
    assert "\x1b" not in err
