"""Turns that share a row, spread out again (simkv/events/turns.py), against a loop over single turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.engine.step_time import roofline
from simkv.errors import InputError
from simkv.events.layout import LAST_INDEX, STEP, TICK
from simkv.events.log import EventLog
from simkv.events.turns import Turns
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate

FIRST_ONLY = ("queries", "hits", "recompute_queries", "recompute_hits", "stored", "removed", "admitted", "preempted")


@st.composite
def packed(draw: Any) -> Turns:
    """Rows with as many events as their turns need, or none at all where there is no log."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=12))
    logged = draw(st.booleans())
    rows = np.zeros(len(sizes), STEP)
    clock, event = 0.0, 0
    ticks = np.zeros(sum(sizes) - len(sizes), TICK)
    for row, turns in zip(rows, sizes, strict=True):
        row["turns"], row["decode"], row["first_event"] = turns, draw(st.integers(0 if turns == 1 else 1, 4)), event
        row["schedule"] = draw(st.integers(0, 9) | st.just(LAST_INDEX - 1)) if turns > 1 else draw(st.integers(-1, 9))
        for name in (*FIRST_ONLY, "finished", "cadence", "free", "cached"):
            row[name] = draw(st.integers(0, 9))
        event += (draw(st.integers(0, 6)) + int(row["decode"]) * turns) if logged else 0
    for row in rows:
        row["time"], row["duration"], row["end"] = clock, clock + 0.25, clock + 0.5
        clock += 1
    ticks["time"], ticks["duration"], ticks["end"] = (np.arange(len(ticks)) + part for part in (0.1, 0.2, 0.3))
    return Turns(rows, ticks, event)


def one_by_one(turns: Turns) -> npt.NDArray[np.void]:
    out, tick = [], 0
    firsts = [*turns.rows["first_event"].tolist(), turns.events]
    for i, row in enumerate(turns.rows):
        n, decode = int(row["turns"]), int(row["decode"])
        for k in range(n):
            turn = row.copy()
            turn["turns"] = 1
            turn["schedule"] = min(int(row["schedule"]) + k, LAST_INDEX)
            if k > 0:
                turn["time"], turn["duration"] = turns.ticks["time"][tick], turns.ticks["duration"][tick]
                for name in FIRST_ONLY:
                    turn[name] = 0
                if firsts[i + 1] > firsts[i]:
                    turn["first_event"] = firsts[i + 1] - (n - k) * decode
                tick += 1
            if k < n - 1:
                turn["end"], turn["finished"], turn["cadence"] = turns.ticks["end"][tick], 0, decode
            out.append(turn)
    return np.array(out, STEP)


@given(packed())
def test_spread_as_one_by_one(turns: Turns) -> None:
    expected = one_by_one(turns)
    assert len(turns) == len(turns.steps) == len(expected)
    for name in STEP.names or ():
        np.testing.assert_array_equal(turns.steps[name], expected[name], name)
    assert turns.busy_s == pytest.approx(float(expected["duration"].sum()))


def test_ticks_that_do_not_belong_to_the_rows() -> None:
    with pytest.raises(ValueError, match="stand for 1 turns, there are 3"):
        _ = Turns(np.array([(0,) * 21 + (1,)], STEP), np.zeros(2, TICK)).steps


def test_a_saved_log_has_the_same_turns(tmp_path: Path) -> None:
    run = replay(generate("multi_turn_chat", requests=20, seed=1), EngineSettings(num_gpu_blocks=4000), roofline(EngineSettings()))
    assert run.log is not None
    assert len(run.log.turns.ticks) > 4 * len(run.log.turns.rows)
    run.log.save(tmp_path)
    again = EventLog.load(tmp_path)
    for name in STEP.names or ():
        np.testing.assert_array_equal(again.steps[name], run.steps[name], name)
    assert again.turn_slice(len(run.steps) - 1) == run.log.turn_slice(len(run.steps) - 1)
    (tmp_path / "ticks.npy").unlink()
    with pytest.raises(InputError, match="no readable event log"):
        EventLog.load(tmp_path)
