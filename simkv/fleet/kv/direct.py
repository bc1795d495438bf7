"""KV events that a replica's engine wrote itself: when a router can know them, and room for new ones. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.events.layout import STEP
from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import kernel
from simkv.fleet.kv.known import TIME, look_at_last, time_of, to_row

KEY, KIND, TURN, TOTAL = (np.dtype(name) for name in ("u8", "u1", "i4", "i8"))


@kernel
def throw_away(f):
    """What was taken makes room, where moving the rest costs no more than taking did."""
    head, total = np.int64(f.head), array_at(f.kv, 1, TOTAL)
    if head == 0 or total[0] - head > head:
        return
    kinds, keys = array_at(f.kinds, f.capacity, KIND), array_at(f.pending, f.capacity, KEY)
    turns, times = array_at(f.kv_turns, f.capacity, TURN), array_at(f.times, f.capacity, TIME)
    for i in range(head, total[0]):
        kinds[i - head], keys[i - head], turns[i - head] = kinds[i], keys[i], turns[i]
    for i in range(head, f.tail):
        times[i - head] = times[i]
    total[0] -= head
    f.tail -= head
    f.head = 0


@kernel
def read_direct(f):
    """Look at all new events of one replica: when each is known."""
    throw_away(f)
    total, count = array_at(f.kv, 1, TOTAL)[0], array_at(f.turns, 1, TOTAL)[0]
    steps, turns, times = array_at(f.steps, f.rooms, STEP), array_at(f.kv_turns, f.capacity, TURN), array_at(f.times, f.capacity, TIME)
    row, time = np.int64(-1), 0.0
    for i in range(f.tail, total):
        if turns[i] != row:
            row = np.int64(turns[i])
            to_row(f, steps, row)
            time = time_of(f, steps, count)
        times[i] = time
    f.tail = total
    if count > 0:
        look_at_last(f, steps, count)
