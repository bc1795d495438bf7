"""The event log as it is written: events of one kind that follow each other share a row, their blocks stand in a column.

Most events are about a block, and come in runs (the blocks an admission takes, a finished request's blocks). Packed, such
an event costs 4 bytes; spread out it has a row of its own, which is how everything reads the log.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.events import layout as ev
from simkv.events.layout import EVENT

IN_RUNS = np.zeros(1 << 8, bool)
"""Kinds whose packed row says how many events it stands for; ``arg`` of each is then the next entry of ``blocks``."""
for _kind in (ev.ALLOCATED, ev.RECYCLED, ev.HIT, ev.RELEASED, ev.FREED_FRONT, ev.FREED_BACK, ev.STORED, ev.EVICTED):
    for _group in range(ev.MAX_GROUPS):
        IN_RUNS[_kind | _group << ev.KIND_BITS] = True


def spread(rows: npt.NDArray[np.void], blocks: npt.NDArray[np.int32]) -> npt.NDArray[np.void]:
    """One ``EVENT`` row per event from packed ``rows`` and the ``blocks`` of their runs.

    Raises:
        ValueError: the columns do not belong together.
    """
    runs = IN_RUNS[rows["kind"]]
    count = np.where(runs, rows["arg"], 1)
    if (count < 0).any() or int(count[runs].sum()) != len(blocks):
        raise ValueError(f"the rows stand for {int(count[runs].sum())} blocks, there are {len(blocks)}")
    out = np.empty(int(count.sum()), EVENT)
    for name in ("req", "arg", "kind"):
        out[name] = np.repeat(rows[name], count)
    out["arg"][np.repeat(runs, count)] = blocks
    return out


def pack(events: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]:
    """``(rows, blocks)`` from one row per event; ``spread`` gives the events back."""
    runs = IN_RUNS[events["kind"]]
    if not len(events):
        return events.copy(), np.zeros(0, np.int32)
    joins = runs[1:] & (events["kind"][1:] == events["kind"][:-1]) & (events["req"][1:] == events["req"][:-1])
    first = np.flatnonzero(np.concatenate([[True], ~joins]))
    rows = events[first].copy()
    length = np.diff(np.append(first, len(events)))
    rows["arg"] = np.where(runs[first], length, rows["arg"])
    return rows, events["arg"][runs].copy()
