"""The pool at one moment: references, keys, free queue, block tables; a fold over the log up to a turn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.events.folds.apply import apply_rows
from simkv.events.folds.compiled import entry
from simkv.events.folds.state import State, start
from simkv.events.log import EventLog

I4 = npt.NDArray[np.int32]


@entry
def run_turns(s, c, events, keys, firsts, first, last):  # type: ignore[no-untyped-def]
    """Apply the turns ``first … last-1``; ``firsts`` has one entry more than there are turns."""
    for turn in range(first, last):
        apply_rows(s, c, events, keys, firsts[turn], firsts[turn + 1], turn)


def turn_starts(log: EventLog) -> npt.NDArray[np.int64]:
    """First row of each turn, and the end of the log: shape ``[turns + 1]``."""
    return np.append(log.steps["first_event"], len(log.events)).astype(np.int64)


class PoolFold:
    """A cursor over the log. ``seek`` forwards goes on from where it stands, backwards starts again."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._firsts = turn_starts(log)
        self._events, self._keys = np.asarray(log.events).view(np.recarray), np.asarray(log.keys)
        self._begin()

    def _begin(self) -> None:
        self._cursor, self._state = start(self.log)
        self._turn = -1

    def seek(self, turn: int) -> PoolState:
        """State after ``turn`` (-1: before the first). The result is a copy.

        Raises:
            InputError: the run has no such turn.
        """
        if not -1 <= turn < len(self.log.steps):
            raise InputError(f"turn {turn} does not exist", expected=f"a turn from -1 to {len(self.log.steps) - 1}")
        if turn < self._turn:
            self._begin()
        run_turns(self._state, self._cursor, self._events, self._keys, self._firsts, self._turn + 1, turn + 1)
        self._turn = turn
        return PoolState(self.log, turn, self._state)


class PoolState:
    """What every block is, at one moment. N blocks; arrays are copies."""

    def __init__(self, log: EventLog, turn: int, state: State) -> None:
        b = state.blocks
        self.step, self.num_blocks = turn, len(b)
        self.block_sizes = tuple(int(g["block_size"]) for g in log.header["groups"])
        self.ref: I4 = b["ref"].copy()
        self.key: npt.NDArray[np.uint64] = b["key"].copy()
        self.writer: I4 = b["writer"].copy()
        self.position: I4 = b["position"].copy()
        self.since: I4 = b["since"].copy()
        self.group: npt.NDArray[np.int8] = state.group.copy()
        self._next: I4 = b["next"].copy()
        groups = len(self.block_sizes)
        live = np.flatnonzero(state.slots["req"] >= 0)
        live = live[np.argsort(state.slots["order"][live], kind="stable")]
        self._live = state.slots["req"][live].copy()
        self._tables = {
            int(state.slots[i].req): [state.tables[i * groups + g, : state.lengths[i * groups + g].length].copy() for g in range(groups)]
            for i in live
        }

    def free_queue(self) -> I4:
        """Blocks in the free queue, head (next victim) first. Cached but unreferenced blocks are among them."""
        out, b = [], int(self._next[0])
        links = self._next.tolist()
        while b:
            out.append(b)
            b = links[b]
        return np.array(out, np.int32)

    def live(self) -> I4:
        """Requests that hold blocks, in order of admission."""
        return self._live

    def tables(self, req: int) -> list[I4]:
        """The request's block table per group, logical order; 0 is the null block. Empty tables if it holds none."""
        return self._tables.get(req, [np.zeros(0, np.int32) for _ in self.block_sizes])

    def owners(self, block: int) -> I4:
        """Requests whose tables hold the block, in order of admission."""
        return np.array([r for r in self._live.tolist() if any((t == block).any() for t in self._tables[r])], np.int32)

    def shared(self) -> I4:
        """Blocks held by more than one request."""
        return np.flatnonzero(self.ref > 1).astype(np.int32)

    @property
    def usage(self) -> float:
        """vllm:kv_cache_usage_perc: blocks held by live requests over usable blocks."""
        return float(np.count_nonzero(self.ref[1:] > 0)) / (self.num_blocks - 1)


def pool_at(log: EventLog, step: int) -> PoolState:
    """The pool after turn ``step`` (an index into ``log.steps``; -1: before the first)."""
    return PoolFold(log).seek(step)
