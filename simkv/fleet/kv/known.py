"""When a router can know of what happened in a turn. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.events.layout import TICK
from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import inline, kernel

TIME = np.dtype("f8")


@inline
def tick(f, i):
    return array_at(f.ticks, f.rooms, TICK)[i]


@kernel
def to_row(f, steps, row):
    """Go on to a row of ``steps``; it may stand for several turns (simkv/events/turns.py)."""
    while f.turn < row:
        f.tick += steps[f.turn].turns - 1
        f.turn += 1


@kernel
def time_of(f, steps, rows):
    """When the events of row ``f.turn``, which are its first turn's, leave the replica.

    With that turn's output, or with the output before it where scheduling runs ahead. ``f.lag`` later they are known, and never
    before those that were looked at earlier.
    """
    step = steps[f.turn]
    if step.turns > 1:
        at = tick(f, f.tick).time
    elif f.turn + 1 < rows:
        at = min(step.end, steps[f.turn + 1].time)
    elif f.timed:
        at = array_at(f.now, 1, TIME)[0]
    else:
        at = step.time
    f.latest = max(f.latest, at + f.lag)
    return f.latest


@kernel
def look_at_last(f, steps, rows):
    """Take note of the last turn, whatever happened in it: a batch on a dead device can lie behind the restart, which must not
    overtake it.
    """
    to_row(f, steps, rows - 1)
    step = steps[f.turn]
    if f.timed:
        at = array_at(f.now, 1, TIME)[0]
    elif step.turns > 1:
        at = tick(f, f.tick + step.turns - 2).time
    else:
        at = step.time
    f.latest = max(f.latest, at + f.lag)
