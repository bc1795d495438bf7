"""The table of turns as it is written: turns that follow each other and in which the same requests decode share a row.

Most turns of a replica that is not overloaded give every running request its next token and change nothing else. Packed,
such a turn costs 24 bytes; spread out it has a row of its own, which is how everything reads the table.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from simkv.events.layout import LAST_INDEX, TICK

NO_TICKS: npt.NDArray[np.void] = np.zeros(0, TICK)


class Turns:
    """All turns of a run, packed.

    A row stands for ``turns`` turns. ``end``, ``finished`` and ``cadence`` are those of the last of them, all else is as it was in
    the first: ``stored``, ``removed``, admissions and the tokens looked up belong to the first alone, ``schedule`` counts on, and
    events beyond the first turn's are one SCHEDULED per running request and turn. The turns between have no end of a request and
    a gap of one turn for each of their tokens.

    Args:
        rows: ``STEP[r]``.
        ticks: ``TICK[k]``, ``sum(turns - 1)`` of them: between two turns of a row the end of the one, and the other's begin and
            duration.
        events: events in the log, or the number at which it was given up.
    """

    def __init__(self, rows: npt.NDArray[np.void], ticks: npt.NDArray[np.void] = NO_TICKS, events: int = 0) -> None:
        self.rows, self.ticks, self.events = rows, ticks, events

    def __len__(self) -> int:
        return len(self.rows) + len(self.ticks)

    @cached_property
    def steps(self) -> npt.NDArray[np.void]:
        """``STEP[t]``, one row per turn, read-only; made when first asked for."""
        out = self.rows.view() if not len(self.ticks) else self._spread()
        out.setflags(write=False)
        return out

    @property
    def busy_s(self) -> float:
        """Seconds the device computes, of all turns together."""
        return float(self.rows["duration"].sum() + self.ticks["duration"].sum())

    def _spread(self) -> npt.NDArray[np.void]:
        turns = self.rows["turns"]
        if int(turns.sum()) != len(self):
            raise ValueError(f"the rows stand for {int(turns.sum())} turns, there are {len(self)}")
        out = np.repeat(self.rows, turns)
        out["turns"] = 1
        last = np.cumsum(turns) - 1
        first = last - turns + 1
        later = np.ones(len(out), bool)
        later[first] = False
        inside = np.ones(len(out), bool)
        inside[last] = False
        after = np.arange(len(out)) - np.repeat(first, turns)
        out["time"][later], out["duration"][later] = self.ticks["time"], self.ticks["duration"]
        out["end"][inside] = self.ticks["end"]
        out["finished"][inside] = 0
        out["cadence"][inside] = out["decode"][inside]
        for name in ("stored", "removed", "queries", "hits", "recompute_queries", "recompute_hits", "admitted", "preempted"):
            out[name][later] = 0
        out["schedule"] = np.minimum(out["schedule"] + after, LAST_INDEX)
        # A row's last events are its later turns'. Where no log was written all stay where the row is.
        upto = np.repeat(np.append(self.rows["first_event"][1:], self.events), turns)
        to_come = (np.repeat(turns, turns) - after) * out["decode"].astype(np.int64)
        out["first_event"][later] = np.maximum(out["first_event"], upto - to_come)[later]
        return out
