"""``simkv waste`` and ``--engine contiguous``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simkv.cli import main


def test_figure_2_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["waste", "sharegpt_lengths"]) == 0
    text = capsys.readouterr().out
    assert "1,779 requests" in text
    assert "max, buddy        16.7 %        20.4 %" in text
    assert "pow2, buddy       26.1 %        26.8 %" in text
    assert "oracle, buddy     41.9 %        38.2 %" in text
    assert "paged, block 256  71.8 %             –" in text


def test_json_and_block_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["waste", "sharegpt", "--json", "--block-sizes", "16, 512"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == 1779
    assert [bar["scheme"] for bar in found["shares_of_held_memory"]][4:] == ["paged, block 16", "paged, block 512"]
    assert found["shares_of_held_memory"][4]["paper"] == 0.963


def test_other_sources_and_all_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["waste", "azure_code_2023", "--limit", "400", "--json", "--all", "--max-model-len", "8192"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 300 < found["requests"] <= 400
    assert found["mean_prompt"] > 1024


def test_throughput_on_a_small_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"conv": k, "turns": [["human", 20 + 7 * k % 90], ["gpt", 10 + 13 * k % 170]]}) for k in range(40)]
    file = tmp_path / "lengths.jsonl"
    file.write_text("\n".join(rows))
    assert main(["waste", str(file), "--throughput", "--latency", "0.06", "--seed", "3", "--block-sizes", "16"]) == 0
    text = capsys.readouterr().out
    assert "seed 3" in text
    assert "OPT-13B on A100-SXM4-40GB" in text
    assert all(name in text for name in ("paged", "oracle, exact", "static", "1.7 to 2.7"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--block-sizes", "16,x"], "block-sizes=16,x"),
        (["--block-sizes", "0"], "block-sizes=0"),
        (["--max-model-len", "0"], "max-model-len=0"),
        (["--max-model-len", "64"], "at most max_model_len=64"),
        (["--throughput", "--latency", "-1"], "latency=-1"),
        (["--throughput", "--model", "OPT-99B"], "OPT-13B"),
    ],
)
def test_what_cannot_be_asked_ends_in_a_sentence(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["waste", "sharegpt_lengths", *args]) == 2
    assert says in capsys.readouterr().err


def test_replaying_with_contiguous_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["replay", "generator:multi_turn_chat?requests=20&rate=10", "--engine", "contiguous", "--set", "num_gpu_blocks=2000"]
    assert main([*line, "--set", "reservation=pow2", "--json", "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finished"] == 20
    assert found["hit_rate"] is None, "nothing is cached, which is not the same as never hit"
    assert sum(found["kv_memory"].values()) == pytest.approx(1)
    assert main([*line, "--events"]) == 0
    text = capsys.readouterr().out
    assert "reserves max_model_len tokens (Orca Max)" in text
    assert "of the KV memory, mean over time; reserved" in text
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_memory"] is None, "without the event log nobody knows"
