"""What V0 refuses, what it fills in, and recorded beam parents that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.engine.contract import DONE, PROCESSED, SCHEDULED
from simkv.engine.step_time import linear
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.engine.vllm_v0.parentage import Parentage, read_parentage
from simkv.engine.vllm_v0.resolve import resolve
from simkv.errors import InputError, SettingsError
from simkv.replay import replay
from simkv.settings import V0Settings, settings_from
from tests.vllm_v0.cases import case, engine, workload


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"n": 3, "best_of": 2}, "best_of=2: allowed is at least n=3"),
        ({"use_beam_search": True}, "best_of=1: allowed is at least 2"),
        ({"n": 9}, "n=9: allowed is a whole number from 1 to 8"),
        ({"n": 4, "max_num_seqs": 3}, "max_num_seqs=3: allowed is at least best_of=4"),
        ({"n": 2, "preemption_mode": "recompute"}, "preemption_mode=recompute: allowed is swap"),
        ({"preemption_mode": "drop"}, "preemption_mode=drop: allowed is recompute, swap"),
        ({"enable_prefix_caching": True}, "enable_prefix_caching=True: allowed is a setting of vllm-v0"),
    ],
)
def test_refused_settings(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from({"engine": "vllm-v0", **values})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_gpu_blocks": 4, "max_model_len": 17}, "max_model_len=17: allowed is at most 16"),
        ({"max_num_batched_tokens": 32, "max_num_seqs": 8}, "max_num_batched_tokens=32: allowed is at least max_model_len=64"),
        ({"max_num_batched_tokens": 64}, "max_num_batched_tokens=64: allowed is at least max_num_seqs=256"),
    ],
)
def test_refused_at_start_up(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        engine(case([(0, 4, 4)], **values))
    assert said in str(caught.value)


def test_what_is_filled_in() -> None:
    w = workload(case([(0, 100, 21)]))
    s = resolve(V0Settings(n=4), w)
    # 128 KiB of KV per token: 4 GiB of host memory are 2,048 blocks of 16 tokens.
    assert (s.max_model_len, s.max_num_batched_tokens, s.max_running, s.num_cpu_blocks) == (128, 2048, 64, 2048)
    assert s.capacity is not None
    assert s.num_gpu_blocks == s.capacity.num_gpu_blocks + 1
    assert s.watermark_blocks == s.capacity.num_gpu_blocks // 100
    assert resolve(V0Settings(n=4, swap_bandwidth=2e9), w).swap_block_s == pytest.approx(16 * 131072 / 2e9)
    assert resolve(V0Settings(), w).swap_block_s == 0.0


def test_swapping_takes_time() -> None:
    """Two groups of two in a pool for one and a half: each block that goes out comes back, and both directions are paid for."""
    tight = case([(0, 7, 12), (0, 7, 12)], n=2, num_gpu_blocks=12, max_model_len=32, swap_bandwidth=1e9)
    slow, fast = (
        engine(tight, linear(0.01, 0.0, 0.0)),
        engine({**tight, "config": {**tight["config"], "swap_bandwidth": 1e15}}, linear(0.01, 0.0, 0.0)),
    )
    assert slow.advance() == fast.advance() == DONE
    moved = int(slow.counters.swapped_out) + int(slow.counters.swapped_in)
    assert int(slow.counters.swapped_out) == int(slow.counters.swapped_in) > 0
    assert float(slow.counters.now) - float(fast.counters.now) == pytest.approx(moved * 4 * 131072 / 1e9, rel=1e-3)


def test_a_single_sequence_is_recomputed_unless_told_to_swap() -> None:
    tight = case([(0, 7, 12), (0, 7, 12)], num_gpu_blocks=8, max_model_len=32)
    e = engine(tight)
    assert e.advance() == DONE
    assert int(e.counters.preemptions) > 0
    assert int(e.counters.swapped_out) == 0
    e = engine({**tight, "config": {**tight["config"], "preemption_mode": "swap"}})
    assert e.advance() == DONE
    assert int(e.counters.swapped_out) > 0


def test_through_the_replay() -> None:
    run = replay(workload(case([(0, 20, 5), (1, 20, 5)])), V0Settings(best_of=2, use_beam_search=True))
    assert run.status == "complete"
    assert run.requests["generated"].tolist() == [5, 5]
    assert run.log is not None
    assert any("drawn" in note for note in run.resolved.notes)


def test_drawn_parents_do_not_depend_on_the_schedule() -> None:
    """A request alone and the same request among others share the same blocks with itself."""
    alone = case([(0, 6, 20)], best_of=4, use_beam_search=True, beam_resampling=0.5, num_gpu_blocks=1000, max_model_len=32)
    crowd = {**alone, "requests": alone["requests"] + [{"id": f"r{i}", "arrive": i % 3, "prompt": 9, "output": 17} for i in range(1, 9)]}

    def patterns(e: V0Engine) -> dict[int, list[list[int]]]:
        """Tokens out -> tables of request 0, blocks renamed in order of appearance."""
        out = {}
        while e.advance(pause=True) == SCHEDULED and e.advance(pause=True) == PROCESSED:
            rows = [t.tolist() for t in e.tables(0)]
            names = {block: k for k, block in enumerate(dict.fromkeys(block for row in rows for block in row))}
            out[int(e.generated()[0])] = [[names[block] for block in row] for row in rows]
        return out

    quiet, busy = patterns(engine(alone)), patterns(engine(crowd))
    assert len(quiet) == 20
    assert all(busy[tokens] == rows for tokens, rows in quiet.items())
    other = {**alone, "config": {**alone["config"], "beam_seed": 1}}
    assert patterns(engine(other)) != quiet


def test_resampling_decides_how_much_is_shared() -> None:
    def saved(chance: float) -> float:
        requests = [(0, 8, 60)] * 20
        e = engine(
            case(requests, best_of=4, use_beam_search=True, beam_resampling=chance, num_gpu_blocks=4000, max_model_len=80),
            linear(0.01, 0, 0),
        )
        assert e.advance() == DONE
        over_time = e.sharing()["over_time"]
        assert over_time is not None
        return over_time

    never, seldom, always = saved(0.0), saved(0.05), saved(1.0)
    assert never < seldom < always < 0.75
    samples = engine(case([(0, 8, 60)] * 20, n=4, num_gpu_blocks=4000, max_model_len=80), linear(0.01, 0, 0))
    samples.advance()
    assert samples.sharing()["over_time"] == never, "beams that never meet share like samples"


def test_nothing_measured_is_none() -> None:
    assert engine(case([(0, 4, 4)])).sharing() == {"over_time": None, "over_steps": None}


@pytest.mark.parametrize(
    ("rows", "first", "said"),
    [
        ([[0, 0, 0]] * 3, [0, 3], "expected 4 candidates in each row"),
        ([[0, 0, 0, 0]] * 2, [0, 2], "one row per output token but the first"),
        ([[0, 0, 0, 2]] * 3, [0, 3], "places from 0 to 1"),
    ],
)
def test_parents_that_do_not_fit(rows: list[list[int]], first: list[int], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Parentage(np.array(rows, np.int32), np.array(first, np.int64)).check([4], 2)
    assert said in str(caught.value)


def test_parents_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "parents.jsonl"
    path.write_text("[[0,0,1,1],[1,1,1,1]]\n[]\n[[0,1,0,1]]\n")
    read = read_parentage(path)
    assert read.rows.tolist() == [[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]]
    assert read.first.tolist() == [0, 2, 2, 3]
    read.check([3, 1, 2], 2)
    for damaged in ("[[0,0,1,1],[0,1]]", "[[0,-1]]", "{}", "[[0,0.5]]", "[1", '[["0"]]'):
        path.write_text("[[0,0,1,1]]\n" + damaged)
        with pytest.raises(InputError, match="line 2"):
            read_parentage(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_parentage(tmp_path / "nothing.jsonl")
