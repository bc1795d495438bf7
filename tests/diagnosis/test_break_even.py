"""Load or recompute."""

from __future__ import annotations

import json

import pytest

from simkv.cli import main
from simkv.diagnosis.break_even import LOAD, RECOMPUTE, break_even, faster
from simkv.engine.step_time import linear, roofline
from simkv.errors import SettingsError
from simkv.hardware import find_gpu
from simkv.hardware.transfer import Link, host_link
from simkv.settings import EngineSettings

H100 = find_gpu("H100-SXM5-80GB")
INSTANT = Link("x", 1e30, 0.0)


def test_the_length_by_hand() -> None:
    """1 ms a prefill token, 0.5 ms a token over the link, 100 ms a transfer: 16 n > 8 n + 100 from n = 13 blocks on."""
    settings = EngineSettings(block_size=16, max_num_batched_tokens=1 << 20, max_num_seqs=1)
    per_token = 131_072
    found = break_even(settings, Link("x", per_token / 0.5e-3, 0.1), longest=1024, step_time=linear(0.0, 1e-3, 0.0))
    assert found.length == 208
    assert [c.faster for c in found.costs] == [RECOMPUTE, LOAD, LOAD, LOAD]
    assert found.costs[0].load_s == pytest.approx(0.1 + 128 * 0.5e-3)
    assert found.costs[0].recompute_s == pytest.approx(0.128)
    assert found.costs[-1].context == 1024
    assert "from 208 tokens on" in found.sentence


def test_a_prompt_is_computed_in_steps_of_the_budget() -> None:
    settings = EngineSettings(max_num_batched_tokens=512, max_num_seqs=8)
    time = roofline(settings)
    found = break_even(settings, INSTANT, longest=1300)
    wanted = time.seconds([(0, 512)]) + time.seconds([(512, 512)]) + time.seconds([(1024, 276)])
    assert found.costs[-1].recompute_s == pytest.approx(wanted)
    assert found.costs[-1].load_s == pytest.approx(time.seconds([(1299, 1)]))


def test_a_slow_link_never_wins_and_a_faster_one_wins_earlier() -> None:
    lengths = [break_even(EngineSettings(), host_link(H100, rate)).length for rate in (1e9, 25e9, 51e9)]
    assert lengths[0] is None
    assert lengths[1] is not None
    assert lengths[2] is not None
    assert lengths[2] < lengths[1]
    assert "up to 131,072 tokens computing" in break_even(EngineSettings(), host_link(H100, 1e9)).sentence


def test_lengths_are_looked_at_down_to_the_first_that_loses() -> None:
    found = break_even(EngineSettings(), host_link(H100), longest=4096)
    assert found.length is not None
    for cost in found.costs:
        assert (cost.faster == LOAD) == (cost.context >= found.length)
    assert found.link_tokens_per_s == pytest.approx(390_625)


def test_too_short_a_prompt_is_refused() -> None:
    with pytest.raises(SettingsError, match="longest"):
        break_even(EngineSettings(), INSTANT, longest=15)


def test_faster_by_measured_rates() -> None:
    assert faster(100, 1000, 9.9) == (10, LOAD)
    assert faster(100, 1000, 10) == (10, RECOMPUTE)


def test_the_command_for_people_and_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer"]) == 0
    text = capsys.readouterr().out
    assert "PCIe 5.0 x16 moves the KV of 390,625 tokens per second" in text
    assert "524,288 tokens in 32,768 chunks" in text
    assert "assumed, not measured" in text
    assert main(["transfer", "--json", "--bandwidth", "1", "--host-gib", "1", "--longest", "2048", "--blocks-per-chunk", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["break_even_tokens"] is None
    assert found["native_chunks"] == 256
    assert [c["tokens"] for c in found["curve"]] == [128, 256, 512, 1024, 2048]
    assert {c["faster"] for c in found["curve"]} == {"recompute"}
    assert main(["transfer", "--bandwidth", "0"]) == 2
    assert "bandwidth" in capsys.readouterr().err
