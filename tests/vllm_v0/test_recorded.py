"""What vLLM 0.2.7 itself decided, step by step (tests/golden/vllm_v0)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.engine.contract import DONE, PROCESSED, REJECTED, SCHEDULED, STALLED
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.errors import EngineError
from tests.vllm_v0.cases import engine

RECORDED = sorted((Path(__file__).parents[1] / "golden" / "vllm_v0").glob("*.json.gz"))


def tables(e: V0Engine) -> dict[str, list[list[int]]]:
    """Block tables with V0's own numbers: ours count the other way on the GPU and alike in host memory."""
    c, blocks = e.counters, e.settings.num_gpu_blocks - 1
    out = {}
    for group, here in ((e.state.running[: int(c.running)], True), (e.state.swapped[: int(c.swapped)], False)):
        for r in e.state.slots["req"][group].tolist():
            out[f"r{r}"] = [[blocks - b if here else b for b in t.tolist()] for t in e.tables(r)]
    return out


def after_schedule(e: V0Engine, before: dict[str, int]) -> dict[str, Any]:
    """The first half of a record; the counts since the last one."""
    c, state = e.counters, e.state
    names = [f"r{r}" for r in state.slots["req"].tolist()]
    lists = {"scheduled": state.rows[: int(c.rows)], "running": state.running[: int(c.running)], "swapped": state.swapped[: int(c.swapped)]}
    out: dict[str, Any] = {name: [names[s] for s in slots] for name, slots in lists.items()}
    out |= {"waiting": [f"r{r}" for r in e.waiting()], "free": int(c.free), "cpu_free": int(c.cpu_free), "tables": tables(e)}
    for name in before:
        out[name] = int(c[name]) - before[name]
        before[name] = int(c[name])
    return out


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_recorded_run(path: Path) -> None:
    recording = json.loads(gzip.decompress(path.read_bytes()))
    e, before = engine(recording["case"]), dict.fromkeys(("copies", "swapped_in", "swapped_out"), 0)
    for step in recording["steps"]:
        if "error" in step:
            with pytest.raises(EngineError, match="Raise swap_space"):
                e.advance(pause=True)
            return
        reason = e.advance(pause=True)
        while reason == SCHEDULED and not e.counters.in_flight:  # an abort of the last request: nothing is scheduled
            assert e.advance(pause=True) == PROCESSED
            reason = e.advance(pause=True)
        if reason == STALLED:
            assert not step["scheduled"]
            assert step is recording["steps"][-1]
            return
        assert reason == SCHEDULED
        assert after_schedule(e, before) == {name: step[name] for name in after_schedule(e, dict(before))}
        assert all(int(e.state.reqs["status"][int(r[1:])]) == REJECTED for r in step["ignored"])
        e.check_integrity()
        assert e.advance(pause=True) == PROCESSED
        assert tables(e) == step["after"]
        assert int(e.counters.free) == step["free_after"]
        assert [e.settings.num_gpu_blocks - 1 - b for b in e.free_queue()[:8].tolist()] == step["next"]
        e.check_integrity()
    assert e.advance() in (DONE, STALLED)


def test_there_are_recordings() -> None:
    assert len(RECORDED) == 10
