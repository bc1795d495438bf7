"""The compiled engine makes the reference's decisions, over every feature, in pools so tight that it hurts."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as quick
from hypothesis import strategies as st

from simkv.engine.engines import merge
from simkv.engine.resolve import resolve
from simkv.engine.step_time import for_workload
from simkv.settings import EngineSettings
from simkv.workload.registry import read_workload
from tests.engine.cases import Case, draw_case
from tests.engine.compare import Side
from tests.engine.reference import Reference

RECORDED = sorted((Path(__file__).parents[1] / "golden" / "vllm").glob("[0-4]*.input.json*"))
QUIET = quick(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@quick(QUIET, max_examples=260)
@given(st.integers(0, 1 << 32))
def test_every_half_turn_agrees(seed: int) -> None:
    Side(draw_case(Random(seed))).run()


@quick(QUIET, max_examples=110)
@given(st.randoms(use_true_random=False))
def test_every_half_turn_agrees_and_shrinks(r: Random) -> None:
    """The same with draws that hypothesis can make smaller: the first to look at when something differs."""
    Side(draw_case(r, most_requests=8)).run(600)


@pytest.mark.parametrize("seed", range(8))
def test_many_requests(seed: int) -> None:
    """Longer lines than the running limit, so queues wrap and slots are used again and again."""
    Side(draw_case(Random(7_000_000 + seed), most_requests=90)).run(3000)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_the_reference_is_right(path: Path) -> None:
    """It agrees with the engine on the recorded inputs too, where the engine agrees with the recordings."""
    workload = read_workload(path)
    settings = merge(EngineSettings(), workload)
    case = Case(workload, resolve(settings, workload, check_pool=False), for_workload(workload, settings))
    assert Side(case).run() in ("done", "stalled")


def test_the_cases_are_hard() -> None:
    """What is compared is worth comparing: most features happen in a fair share of the cases."""
    seen: dict[str, int] = {}
    for seed in range(200):
        case = draw_case(Random(seed))
        reference = Reference(case.workload, case.settings, case.step_time)
        stale = junction = False
        for _ in range(2000):
            if reference.half_turn() in ("done", "stalled"):
                break
            stale |= any(x.stale for x in reference.requests)
            junction |= any(x.junction for x in reference.requests)
        s = reference.statistics
        facts = {
            "preemptions": s.preemptions,
            "evictions": reference.cache.pool.removed,
            "hits": s.hits,
            "hits of preempted requests": s.recompute_hits,
            "aborts": s.aborted,
            "rejections": s.rejected,
            "stale output": stale,
            "junctions": junction,
        }
        for name, amount in facts.items():
            seen[name] = seen.get(name, 0) + bool(amount)
    assert seen["preemptions"] > 60, seen
    assert seen["evictions"] > 90, seen
    assert min(seen.values()) > 5, seen
