"""Memory saved by sharing: against arithmetic where there is some, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simkv.cli import main
from simkv.engine.step_time import linear
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.engine.vllm_v0.resolve import resolve
from simkv.errors import InputError
from simkv.planning.sharing import lengths_workload, measure, sweep
from simkv.settings import V0Settings


def by_hand(prompt: int, output: int, width: int, size: int) -> float:
    """One request of parallel samples: full prompt blocks are held once, everything else by each sequence."""
    tables = blocks = -(-prompt // size)  # the prompt step has one sequence
    for token in range(1, output):
        each = -(-(prompt + token) // size)
        tables += width * each
        blocks += prompt // size + width * (each - prompt // size)
    return 1 - blocks / tables


@pytest.mark.parametrize(("prompt", "output", "width"), [(19, 58, 2), (161, 338, 4), (161, 338, 6), (16, 40, 3), (5, 1, 2), (1, 30, 8)])
def test_parallel_sampling_is_arithmetic(prompt: int, output: int, width: int) -> None:
    w = lengths_workload(np.array([prompt]), np.array([output]), 1.0, 0)
    e = V0Engine(w, resolve(V0Settings(n=width), w), linear(0.01, 0.0, 0.0).record(), log=False)
    e.advance()
    saved = e.sharing()
    assert saved["over_steps"] == pytest.approx(by_hand(prompt, output, width, 16))
    assert saved["over_time"] == pytest.approx(saved["over_steps"])


def test_a_sweep_has_every_row() -> None:
    w = lengths_workload(np.full(30, 50), np.full(30, 100), 4.0, 0)
    found = sweep(w, V0Settings(use_beam_search=True, best_of=2), [2, 4], [2, 3], [0.1, 1.0])
    assert [(f.method, f.width, f.resampling) for f in found] == [
        ("parallel sampling", 2, None),
        ("parallel sampling", 4, None),
        ("beam search", 2, 0.1),
        ("beam search", 2, 1.0),
        ("beam search", 3, 0.1),
        ("beam search", 3, 1.0),
    ]
    assert all(f.saved is not None and 0 < f.saved < 1 - 1 / f.width for f in found)
    assert found[0].forks == 1.0
    assert found[1].forks == 3.0
    assert all(f.saved > found[0].saved for f in found[2:])  # type: ignore[operator]


def test_nothing_to_measure() -> None:
    with pytest.raises(InputError, match="no request"):
        lengths_workload(np.zeros(0, np.int64), np.zeros(0, np.int64), 1.0, 0)


def test_one_sequence_saves_nothing() -> None:
    w = lengths_workload(np.full(5, 50), np.full(5, 20), 4.0, 0)
    assert measure(w, V0Settings()).saved == 0.0


def test_figure_15_from_the_bundled_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    """The paper has 16.2 to 30.5 % for samples and 44.3 to 66.3 % for beams; its chats are longer (161 / 338 tokens)."""
    assert main(["sharing", "sharegpt_lengths", "--n", "2,6", "--beam", "2,6", "--resampling", "0.02", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["requests"] == 1779
    saved = {(row["method"], row["width"]): row["saved"] for row in said["saved"]}
    assert saved["parallel sampling", 2] == pytest.approx(0.154, abs=0.002)
    assert saved["parallel sampling", 6] == pytest.approx(0.258, abs=0.002)
    assert saved["beam search", 2] == pytest.approx(0.417, abs=0.002)
    assert saved["beam search", 6] == pytest.approx(0.654, abs=0.002)


def test_the_table_and_recorded_parents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "generator:open_ended?requests=20&prompt_tokens=30&output_tokens=20&length_cv=0"
    assert main(["sharing", source, "--n", "2", "--beam", "2", "--resampling", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "20 requests, in the mean 50.0 tokens of prompt and 20.0 of output" in out
    assert "beam search" in out
    assert "ShareGPT 44.3 % to 66.3 %" in out

    # Beams that all descend from the first one share everything but their last block.
    parents = tmp_path / "parents.jsonl"
    parents.write_text("\n".join([json.dumps([[0, 0, 0, 0]] * 19)] * 20))
    assert main(["sharing", source, "--n", "", "--beam", "2", "--parents", str(parents), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["saved"]
    tables = blocks = 4
    for token in range(1, 20):
        each = -(-(50 + token) // 16)
        tables, blocks = tables + 2 * each, blocks + each + 1
    assert row["resampling"] is None
    assert row["saved"] == pytest.approx(1 - blocks / tables, abs=0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--n", "two"], "n=two: allowed is numbers"),
        (["--n", "9"], "best_of=9: allowed is a whole number from 1 to 8"),
        (["--beam", "1"], "best_of=1: allowed is at least 2"),
        (["--resampling", "1.5"], "beam_resampling=1.5"),
        (["--rate", "0"], "rate=0.0: allowed is requests per second, more than 0"),
        (["--set", "enable_prefix_caching=true"], "a setting of vllm-v0"),
        (["--parents", "nothing.jsonl"], "beam=2,4,6: allowed is one width"),
        (["--beam", "2", "--parents", "nothing.jsonl"], "nothing.jsonl: cannot be read"),
    ],
)
def test_what_the_command_refuses(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sharing", "generator:open_ended?requests=5", *options]) == 2
    assert said in capsys.readouterr().err
