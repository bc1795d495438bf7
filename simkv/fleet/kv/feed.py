"""From a replica's log rows, or what its engine wrote itself, to KV events and when a router can know of them. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.events import layout as ev
from simkv.events.layout import EVENT, STEP
from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import entry, inline, kernel
from simkv.fleet.kv.direct import KEY, KIND, TOTAL, read_direct
from simkv.fleet.kv.index import CLEARED, REMOVED, STORED
from simkv.fleet.kv.known import TIME, look_at_last, time_of, to_row
from simkv.jit import record

U = np.uint64
COUNT, BLOCK = np.dtype("i4"), np.dtype("i4")

_NUMBERS = (
    "log log_blocks log_keys steps ticks rooms"  # addresses of the replica's log, and how many elements may be read there
    " rows blocks keys turns now"  # addresses of its counters
    " direct kv kv_turns"  # whether the engine writes KV events itself; then addresses of how many and of their turns
    " timed drain"  # whether its clock runs in seconds; whether what was read is thrown away
    " row block key turn tick event"  # how far it was read
    " held num_blocks"  # address of u8[num_blocks]: each block's key, 0 for none
    " table counts slots"  # addresses of an open addressing table: keys, and how many blocks hold them
    " kinds pending times capacity head tail"  # addresses of events, of which those before ``head`` were taken; maybe the engine's
)
FEED = record(*((name, "i8") for name in _NUMBERS.split()), ("lag", "f8"), ("latest", "f8"))
"""Where one replica's log lies, and what was made of it."""

RUNS = np.zeros(1 << ev.KIND_BITS, bool)
RUNS[[ev.ALLOCATED, ev.RECYCLED, ev.HIT, ev.RELEASED, ev.FREED_FRONT, ev.FREED_BACK, ev.STORED, ev.EVICTED]] = True


@inline
def total(address):
    return array_at(address, 1, TOTAL)[0]


@kernel
def place_of(table, key):
    mask = table.size - 1
    i = np.int64(key & U(mask))
    while table[i] != 0 and table[i] != key:
        i = (i + 1) & mask
    return i


@kernel
def block_in(held, table, counts, b, key):
    """A block holds this content now. Whether none did before."""
    held[b] = key
    i = place_of(table, key)
    first = table[i] == 0
    if first:
        table[i] = key
        counts[i] = 0
    counts[i] += 1
    return first


@kernel
def block_out(held, table, counts, b):
    """A block holds nothing now. Returns its key if no other block has it, else 0."""
    key = held[b]
    if key == 0:
        return key
    held[b] = U(0)
    hole = place_of(table, key)
    counts[hole] -= 1
    if counts[hole] > 0:
        return U(0)
    mask = table.size - 1
    i = hole
    while True:
        i = (i + 1) & mask
        if table[i] == 0:
            break
        home = np.int64(table[i] & U(mask))
        if (i - home) & mask >= (i - hole) & mask:
            table[hole], counts[hole] = table[i], counts[i]
            hole = i
    table[hole] = U(0)
    return key


@kernel
def read_log(f):
    """Turn all new rows of one replica into events. The caller has seen to it that they fit."""
    rows, turns = total(f.rows), total(f.turns)
    log, blocks, keys = array_at(f.log, f.rooms, EVENT), array_at(f.log_blocks, f.rooms, BLOCK), array_at(f.log_keys, f.rooms, KEY)
    steps = array_at(f.steps, f.rooms, STEP)
    held, table, counts = array_at(f.held, f.num_blocks, KEY), array_at(f.table, f.slots, KEY), array_at(f.counts, f.slots, COUNT)
    kinds, pending, times = array_at(f.kinds, f.capacity, KIND), array_at(f.pending, f.capacity, KEY), array_at(f.times, f.capacity, TIME)
    tail = np.int64(f.tail)
    if f.row == rows:
        return
    time = time_of(f, steps, turns)
    while f.row < rows:
        while f.turn + 1 < turns and f.event >= steps[f.turn + 1].first_event:
            to_row(f, steps, f.turn + 1)
            time = time_of(f, steps, turns)
        row = log[f.row]
        kind, group, n = row.kind & ev.KIND_MASK, row.kind >> ev.KIND_BITS, np.int64(1)
        if RUNS[kind]:
            n = np.int64(row.arg)
            if kind == ev.STORED:
                if group == 0:
                    for i in range(n):
                        key = keys[f.key + i]
                        if block_in(held, table, counts, blocks[f.block + i], key):
                            kinds[tail], pending[tail], times[tail] = STORED, key, time
                            tail += 1
                f.key += n
            elif kind == ev.RECYCLED or kind == ev.EVICTED:
                for i in range(n):
                    key = block_out(held, table, counts, blocks[f.block + i])
                    if key != 0:
                        kinds[tail], pending[tail], times[tail] = REMOVED, key, time
                        tail += 1
            f.block += n
        elif kind == ev.STORED_EXTRA or kind == ev.HOST_STORED:
            f.key += 1
        elif kind == ev.CLEARED:
            held[:] = U(0)
            table[:] = U(0)
            kinds[tail], pending[tail], times[tail] = CLEARED, U(0), time
            tail += 1
        f.event += n
        f.row += 1
    f.tail = tail
    if f.turn + 1 == turns:
        look_at_last(f, steps, turns)
    if f.drain:
        array_at(f.rows, 1, TOTAL)[0] = array_at(f.blocks, 1, TOTAL)[0] = array_at(f.keys, 1, TOTAL)[0] = 0
        f.row = f.block = f.key = 0


@kernel
def has_room(f):
    """Whether the events of all new rows fit; what was taken is overwritten first."""
    need = total(f.rows) - f.row + total(f.blocks) - f.block
    if f.tail + need > f.capacity and f.head > 0:
        kinds, keys, times = array_at(f.kinds, f.capacity, KIND), array_at(f.pending, f.capacity, KEY), array_at(f.times, f.capacity, TIME)
        for i in range(f.head, f.tail):
            kinds[i - f.head], keys[i - f.head], times[i - f.head] = kinds[i], keys[i], times[i]
        f.tail -= f.head
        f.head = 0
    return f.tail + need <= f.capacity


@entry
def read_logs(feeds, which, upto, out):
    """Read what is new of the replicas ``which``; ``out[slot]`` becomes the number of events known by ``upto``.

    Returns -1, or the replica whose events do not fit.
    """
    for k in range(which.size):
        f = feeds[which[k]]
        if f.direct:
            read_direct(f)
        elif has_room(f):
            read_log(f)
        else:
            return which[k]
        times = array_at(f.times, f.capacity, TIME)
        n = f.head
        while n < f.tail and times[n] <= upto:
            n += 1
        out[which[k]] = n - f.head
    return -1
