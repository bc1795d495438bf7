"""When a router can know of what happened in a turn. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import kernel

TIME = np.dtype("f8")


@kernel
def time_of(f, steps, turn, turns):
    """When the events of a turn leave the replica: with its output, or with the output before it where scheduling runs ahead.

    ``f.lag`` later they are known, and never before those that were looked at earlier.
    """
    if turn + 1 < turns:
        at = min(steps[turn].end, steps[turn + 1].time)
    elif f.timed:
        at = array_at(f.now, 1, TIME)[0]
    else:
        at = steps[turn].time
    f.latest = max(f.latest, at + f.lag)
    return f.latest
