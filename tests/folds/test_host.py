"""The host tier's history against counting by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.events import layout as ev
from simkv.events.folds.host import host_history
from simkv.events.layout import EVENT, STEP
from simkv.events.log import EventLog
from simkv.metrics.host import host_series, occupancy
from simkv.metrics.rolling import Rolling
from simkv.replay import REQUEST_RESULT

Row = tuple[int, int, int]
KINDS = (ev.HOST_STORED, ev.HOST_REMOVED, ev.HOST_CLEARED, ev.LOAD_STARTED, ev.LOADED, ev.STORE_STARTED, ev.PREEMPTED, ev.ALLOCATED)


def log_of(turns: list[list[Row]], **columns: list[int]) -> EventLog:
    """A log with the rows ``(request, arg, kind)`` of each turn; turn ``i`` lasts from ``i`` to ``i + 1`` seconds."""
    rows = [row for turn in turns for row in turn]
    steps = np.zeros(len(turns), STEP)
    steps["first_event"] = np.cumsum([0, *map(len, turns)])[:-1]
    steps["time"], steps["end"] = np.arange(len(turns)), np.arange(len(turns)) + 1
    for name, values in columns.items():
        steps[name] = values
    keys = np.zeros(sum(kind == ev.HOST_STORED for _, _, kind in rows), np.uint64)
    return EventLog.of_events(np.array(rows, EVENT), keys, steps, {"groups": [{"block_size": 16}]})


def test_by_hand() -> None:
    log = log_of([
        [(0, 4, ev.ALLOCATED), (0, 3, ev.STORE_STARTED)],
        [(0, 0, ev.HOST_STORED), (0, 1, ev.HOST_STORED), (0, 2, ev.HOST_STORED)],
        [],
        [(1, 1, ev.HOST_REMOVED), (1, 2, ev.LOAD_STARTED), (1, 5, ev.PREEMPTED), (1, 7, ev.LOAD_STARTED)],
        [(1, 2, ev.LOADED), (-1, 0, ev.HOST_CLEARED), (0, 0, ev.HOST_STORED)],
    ])  # fmt: skip
    h = host_history(log)
    assert h.held.tolist() == [0, 3, 3, 2, 1]
    assert h.stored.tolist() == [0, 3, 0, 0, 1]
    assert h.removed.tolist() == [0, 0, 0, 1, 0]
    assert h.storing.tolist() == [3, 0, 0, 0, 0]
    assert h.loading.tolist() == [0, 0, 0, 9, 0]
    assert h.loading_first.tolist() == [0, 0, 0, 2, 0]
    assert h.loaded.tolist() == [0, 0, 0, 0, 2]
    found = occupancy(h, log.steps, 4)
    assert found is not None
    assert (found.largest, found.mean) == (0.75, pytest.approx((0 + 3 + 3 + 2 + 1) / 4 / 5))


def test_series_are_over_windows() -> None:
    turns = [[(0, 0, ev.HOST_STORED)], [(0, 2, ev.LOAD_STARTED), (0, 2, ev.LOADED)], [], [(0, 0, ev.HOST_REMOVED)]]
    log = log_of(turns, queries=[100, 100, 0, 0], hits=[0, 60, 0, 0])
    rolling = Rolling(log.steps, np.zeros(0, REQUEST_RESULT), 100, 1.0)
    found = host_series(host_history(log), rolling, 2, 16, np.array([0.0, 1.5, 3.5]))
    assert found["occupancy"].tolist() == [0.5, 0.5, 0.0]
    np.testing.assert_array_equal(found["device_hit_rate"], [0.0, 0.6, np.nan])
    np.testing.assert_array_equal(found["host_hit_rate"], [0.0, 32 / 40, np.nan])
    np.testing.assert_array_equal(found["loaded_per_s"], [np.nan, 2.0, 0.0])
    np.testing.assert_array_equal(found["removed_per_s"], [np.nan, 0.0, 1.0])


def test_nothing_happened() -> None:
    h = host_history(log_of([]))
    assert len(h.held) == 0
    assert occupancy(h, log_of([]).steps, 4) is None
    assert occupancy(host_history(log_of([[], []])), log_of([[], []]).steps, 0) is None
    assert host_history(log_of([[], []])).held.tolist() == [0, 0]


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32))
def test_any_log(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        [(rng.randint(-1, 3), rng.randint(1, 9), rng.choice(KINDS)) for _ in range(rng.randint(0, 6))] for _ in range(rng.randint(0, 8))
    ]
    held, wanted, loads, victims = 0, [], [], set()
    for turn in rows:
        first = 0
        for req, arg, kind in turn:
            held = 0 if kind == ev.HOST_CLEARED else held + (kind == ev.HOST_STORED) - (kind == ev.HOST_REMOVED)
            first += arg if kind == ev.LOAD_STARTED and req not in victims else 0
            victims |= {req} if kind == ev.PREEMPTED else set()
        wanted.append(held)
        loads.append(first)
    h = host_history(log_of(rows))
    assert h.held.tolist() == wanted
    assert h.loading_first.tolist() == loads
