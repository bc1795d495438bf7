"""The host tier over time: what it holds and what goes in and out, turn by turn; a fold over the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.events import layout as ev
from simkv.events.folds.pool import turn_starts
from simkv.events.log import EventLog

I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HostHistory:
    """Figures of each turn, i8[s].

    Args:
        held: chunks that can be read after the turn. vLLM has no metric for it.
        stored, removed: chunks that became readable and that were evicted in it.
        storing: chunks whose copy to the host was ordered.
        loading: blocks whose copy to the device was ordered.
        loading_first: of those, for requests that were not preempted before (what external_prefix_cache_hits counts).
        loaded: blocks whose copy to the device ended.
    """

    held: I8
    stored: I8
    removed: I8
    storing: I8
    loading: I8
    loading_first: I8
    loaded: I8


def host_history(log: EventLog) -> HostHistory:
    """Fold a log. Everything is 0 for an engine without a host tier."""
    firsts = turn_starts(log)
    turns, events = len(log.steps), log.events[int(firsts[0]) :]
    firsts = firsts - firsts[0]
    kinds = np.asarray(events["kind"] & ev.KIND_MASK, np.uint8)
    turn = np.repeat(np.arange(turns), np.diff(firsts))

    def count(kind: int) -> I8:
        return np.bincount(turn[kinds == kind], minlength=turns).astype(np.int64)

    def total(kind: int, also: npt.NDArray[np.bool_] | None = None) -> I8:
        rows = kinds == kind if also is None else (kinds == kind) & also
        return np.rint(np.bincount(turn[rows], weights=events["arg"][rows], minlength=turns)).astype(np.int64)

    return HostHistory(
        held=_held(kinds, firsts[1:]),
        stored=count(ev.HOST_STORED),
        removed=count(ev.HOST_REMOVED),
        storing=total(ev.STORE_STARTED),
        loading=total(ev.LOAD_STARTED),
        loading_first=total(ev.LOAD_STARTED, ~_preempted_before(events, kinds)),
        loaded=total(ev.LOADED),
    )


def _held(kinds: npt.NDArray[np.uint8], ends: I8) -> I8:
    """Chunks held after each turn, whose rows end before ``ends``."""
    change = (kinds == ev.HOST_STORED).astype(np.int64) - (kinds == ev.HOST_REMOVED)
    running = np.cumsum(change)
    cleared = np.flatnonzero(kinds == ev.HOST_CLEARED)
    out = np.zeros(len(ends), np.int64)
    some = ends > 0
    out[some] = running[ends[some] - 1]
    # A clearing takes away all that was held at that row.
    last = np.searchsorted(cleared, ends) - 1
    after = last >= 0
    out[after] -= running[cleared[last[after]]]
    return out


def _preempted_before(events: npt.NDArray[np.void], kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Per row: whether its request had been preempted in a row before."""
    victims = np.flatnonzero(kinds == ev.PREEMPTED)
    first = np.full(int(events["req"].max(initial=-1)) + 2, len(kinds), np.int64)
    np.minimum.at(first, events["req"][victims], victims)
    return np.asarray(first[events["req"]] < np.arange(len(kinds)), np.bool_)
