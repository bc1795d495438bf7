"""The compiled engine makes the plain reference's decisions, event by event and state by state, in pools so tight that it hurts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as quick
from hypothesis import strategies as st

from simkv.engine.contract import DONE, PROCESSED, SCHEDULED, STALLED, STATUS
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.errors import EngineError
from simkv.events import layout as ev
from tests.vllm_v0.cases import Case, draw_case, engine
from tests.vllm_v0.reference import NoSwapSpace, Reference

QUIET = quick(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
SHARING = ("hit", "released", "adopted")


def same(e: V0Engine, r: Reference) -> None:
    """Queues, stacks, reference counts and tables agree."""
    state, c = e.state, e.counters
    names = [f"r{i}" for i in state.slots["req"].tolist()]
    assert [names[s] for s in state.running[: int(c.running)]] == [g.id for g in r.running]
    assert [names[s] for s in state.swapped[: int(c.swapped)]] == [g.id for g in r.swapped]
    assert [f"r{i}" for i in e.waiting()] == [g.id for g in r.waiting]
    assert state.free[: int(c.free)].tolist() == r.gpu.free
    assert state.cpu_free[: int(c.cpu_free)].tolist() == r.cpu.free
    assert {b: n for b, n in enumerate(state.ref.tolist()) if n} == r.gpu.ref
    for i, group in enumerate(r.groups):
        assert [t.tolist() for t in e.tables(i)] == [s.table for s in group.sequences]
        assert STATUS[int(state.reqs["status"][i])] == group.status
        assert int(e.generated()[i]) == group.generated
    e.check_integrity()


def same_events(e: V0Engine, r: Reference) -> None:
    log = e.event_log()
    assert log is not None
    rows = log.events
    got = [
        (ev.KIND_NAMES[k & ev.KIND_MASK], f"r{q}", int(a)) for q, a, k in zip(rows["req"], rows["arg"], rows["kind"].tolist(), strict=True)
    ]
    assert [row for row in got if row[0] not in SHARING] == r.events


def compare(case: Case, most_turns: int = 600) -> str:
    """Half turns in both until the end."""
    e, r = engine(case), Reference(case)
    outcome = "cut"
    for _ in range(most_turns):
        before = int(e.counters.events)
        try:
            more = r.schedule()
        except NoSwapSpace:
            with pytest.raises(EngineError, match="host memory"):
                e.advance(pause=True)
            return "no swap space"
        got = e.advance(pause=True)
        if got == STALLED:
            outcome = "stalled"
            assert r.swapped
            assert not r.batch
            break
        assert got == (SCHEDULED if more else DONE)
        same(e, r)
        if not more:
            outcome = "done"
            break
        r.process()
        assert e.advance(pause=True) == PROCESSED
        same(e, r)
        assert int(e.counters.events) - before <= int(e.counters.need_events), "more events than a turn has room for"
    if outcome != "stalled":
        same_events(e, r)
    return outcome


@quick(QUIET, max_examples=250)
@given(st.integers(0, 1 << 32))
def test_every_half_turn_agrees(seed: int) -> None:
    compare(draw_case(Random(seed)))


@quick(QUIET, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_every_half_turn_agrees_and_shrinks(r: Random) -> None:
    compare(draw_case(r, most_requests=5), 200)


@pytest.mark.parametrize("seed", range(6))
def test_many_requests(seed: int) -> None:
    compare(draw_case(Random(900_000 + seed), most_requests=80), 3000)


def test_the_cases_are_hard() -> None:
    """What is compared is worth comparing."""
    seen = dict.fromkeys(("copies", "forks", "preemptions", "swapped_out", "swapped_in", "rejected", "aborted", "no swap space"), 0)
    for seed in range(150):
        e = engine(draw_case(Random(seed)))
        try:
            e.advance()
        except EngineError:
            seen["no swap space"] += 1
        for name in seen:
            if name in (e.counters.dtype.names or ()):
                seen[name] += bool(e.counters[name])
    assert min(seen.values()) > 10, seen
