"""Random runs: the state never contradicts itself, the log tells the whole story, and every request comes to its end."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.engine.contract import ABORTED, DONE, FINISHED, PROCESSED, REJECTED, SCHEDULED, STALLED
from simkv.engine.sglang.engine import SglangEngine
from simkv.events import layout as ev
from simkv.events.folds.pool import PoolFold
from tests.engine.sglang.cases import draw_engine

CASES = 120
Moment = tuple[int, list[int], dict[int, list[int]], dict[int, int]]


def moment(engine: SglangEngine) -> Moment:
    """Turn, free list, row of every live request, pages in the tree."""
    e, page = engine.state, int(engine.config.page)
    rows = {i: e.rows[r.slot][: -(-int(r.committed) // page)].tolist() for i, r in enumerate(e.reqs) if r.slot >= 0}
    half = e.arena[int(engine.counters.arena_half)]
    tree = {p: 1 for n in e.nodes[1 : int(engine.counters.nodes)] if n.pages for p in half[n.slots : n.slots + n.pages].tolist()}
    return len(engine.steps) - 1, engine.free_queue().tolist(), rows, tree


def run_watched(engine: SglangEngine) -> tuple[int, list[Moment]]:
    """To the end, looked at after every half turn."""
    moments = []
    while True:
        why = engine.advance(pause=True)
        if why != SCHEDULED:
            return why, moments
        assert engine.advance(pause=True) == PROCESSED
        engine.check_integrity()
        moments.append(moment(engine))


@pytest.mark.parametrize("seed", range(CASES))
def test_a_run_is_sound_and_its_log_tells_it(seed: int) -> None:
    engine = draw_engine(Random(seed))
    why, moments = run_watched(engine)
    assert why in (DONE, STALLED)
    status = engine.state.reqs["status"]
    if why == DONE:
        assert set(status.tolist()) <= {FINISHED, ABORTED, REJECTED}
        assert (engine.generated()[status == FINISHED] == engine.state.reqs["num_output"][status == FINISHED]).all()
    else:
        assert engine.why_stalled().endswith(".")
        assert engine.counters.running == 0
    c, steps = engine.counters, engine.steps
    assert int(steps["queries"].sum()) == c.queries
    assert int(steps["hits"].sum()) == c.hits
    assert int(steps["stored"].sum()) == c.stored
    assert int(steps["removed"].sum()) == c.removed
    assert int(steps["prefill"].sum() + steps["decode"].sum()) == c.tokens
    assert (steps["end"] >= steps["time"]).all()
    log = engine.event_log()
    assert log is not None
    flushed = bool((log.events["kind"] == ev.CLEARED).any())
    fold = PoolFold(log)
    for turn, free, rows, tree in moments:
        state = fold.seek(turn)
        assert {int(r): state.tables(int(r))[0].tolist() for r in state.live()} == rows
        held = np.bincount(np.array([p for row in rows.values() for p in row], np.int64), minlength=state.num_blocks)
        assert np.array_equal(state.ref[1:], held[1:])
        assert set(np.flatnonzero(state.key).tolist()) == set(tree)
        assert (sorted(state.free_queue().tolist()) == sorted(free)) if flushed else (state.free_queue().tolist() == free)


def test_the_cases_cover_what_they_are_meant_to() -> None:
    seen = {"preemptions": 0, "removed": 0, "aborted": 0, "rejected": 0, "recompute_hits": 0, "stalled": 0}
    for seed in range(CASES):
        engine = draw_engine(Random(seed))
        seen["stalled"] += engine.advance() == STALLED
        for name in seen.keys() - {"stalled"}:
            seen[name] += int(engine.counters[name])
    assert all(n > 0 for n in seen.values()), seen


@pytest.mark.parametrize("seed", range(0, CASES, 8))
def test_looking_changes_nothing_and_neither_does_the_log(seed: int) -> None:
    watched, plain = draw_engine(Random(seed)), draw_engine(Random(seed))
    run_watched(watched)
    plain.config.log = 0
    plain.advance()
    assert watched.state.reqs.tobytes() == plain.state.reqs.tobytes()
    for name in ("time", "end", "prefill", "decode", "queries", "hits", "running", "waiting", "free", "cached", "finished", "cadence"):
        assert np.array_equal(watched.steps[name], plain.steps[name]), name
    assert np.array_equal(watched.gaps, plain.gaps)


def test_time_may_be_cut_into_pieces() -> None:
    whole, pieces = draw_engine(Random(3)), draw_engine(Random(3))
    whole.advance()
    for k in range(1, 400):
        pieces.advance(k * 0.01 if pieces.config.virtual else float(k))
    pieces.advance()
    assert whole.state.reqs.tobytes() == pieces.state.reqs.tobytes()
    assert np.array_equal(whole.steps, pieces.steps)


def test_a_log_that_is_too_long_is_given_up() -> None:
    engine = draw_engine(Random(5))
    engine.max_events = 10
    engine.config.max_events = 10
    engine.advance()
    assert engine.log_dropped
    assert engine.event_log() is None
