"""How the held memory is used at every turn: a fold over the log of any engine with one block table a request.

A request holds a table of blocks (cells, pages) and has written so many tokens; what its table has room for beyond them is
unused, and is one of three things: *reserved*, the room its remaining tokens will take; *rounding*, what an allocator added
to what was asked for; *internal*, the rest, which was asked for and is never written.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.events import layout as ev
from simkv.events.folds.compiled import entry, inline
from simkv.events.folds.pool import turn_starts
from simkv.events.log import EventLog

HOLDER = np.dtype([("blocks", "i4"), ("tokens", "i4"), ("length", "i4"), ("asked", "i4")])
USE = np.dtype([(name, "i8") for name in ("held", "reserved", "internal", "rounding", "holders")])
"""One row a turn. ``held``: blocks of live requests, shared ones once; ``reserved``, ``internal``, ``rounding``: tokens;
``holders``: requests that hold blocks."""


@inline
def count_in(use, holder, size, sign):  # type: ignore[no-untyped-def]
    """Add (or take away, ``sign`` -1) what one request leaves unused."""
    if holder.blocks == 0:
        return
    room = holder.blocks * size
    written = min(np.int64(holder.tokens), room)
    needed = max(written, min(room, np.int64(holder.length)))
    asked = max(needed, min(room, np.int64(holder.asked)))
    use.reserved += sign * (needed - written)
    use.internal += sign * (asked - needed)
    use.rounding += sign * (room - asked)
    use.holders += sign


@inline
def take(use, refs, b):  # type: ignore[no-untyped-def]
    use.held += refs[b] == 0
    refs[b] += 1


@inline
def let_go(use, refs, b, kind):  # type: ignore[no-untyped-def]
    refs[b] = refs[b] - 1 if kind == ev.RELEASED else 0
    use.held -= refs[b] == 0


@inline
def copy(use, row):  # type: ignore[no-untyped-def]
    row.held = use.held
    row.reserved = use.reserved
    row.internal = use.internal
    row.rounding = use.rounding
    row.holders = use.holders


@entry
def fold(events, firsts, size, holders, refs, use, busy, after):  # type: ignore[no-untyped-def]
    """Fill ``busy`` and ``after``, one row a turn each: how things stand while its tokens are computed, and behind it.

    They are computed after its last SCHEDULED row (what follows is the output, with which memory is freed); a turn without
    one leaves things as they were.
    """
    for turn in range(busy.size):
        copy(use, busy[turn])
        adopting = False
        for i in range(firsts[turn], firsts[turn + 1]):
            event = events[i]
            kind = event.kind & ev.KIND_MASK
            if kind == ev.ALLOCATED or kind == ev.RECYCLED or kind == ev.HIT:
                take(use, refs, event.arg)
                if not adopting:
                    holder = holders[event.req]
                    count_in(use, holder, size, -1)
                    holder.blocks += 1
                    count_in(use, holder, size, 1)
                continue
            adopting = kind == ev.ADOPTED  # the blocks that follow replace others of the table
            if kind == ev.RELEASED or kind == ev.FREED_FRONT or kind == ev.FREED_BACK:
                let_go(use, refs, event.arg, kind)
            elif kind == ev.ADMITTED or kind == ev.RESUMED or kind == ev.SCHEDULED:
                holder = holders[event.req]
                count_in(use, holder, size, -1)
                holder.tokens = event.arg + (holder.tokens if kind == ev.SCHEDULED else 0)
                count_in(use, holder, size, 1)
                if kind == ev.SCHEDULED:
                    copy(use, busy[turn])
            elif kind == ev.PREEMPTED or kind == ev.FINISHED or kind == ev.ABORTED:
                holder = holders[event.req]
                count_in(use, holder, size, -1)
                holder.blocks = 0
                holder.tokens = 0
        copy(use, after[turn])


def uses(
    log: EventLog, length: npt.NDArray[np.int64], asked: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """How the memory is used while each turn computes, and behind it: ``USE[turns]`` twice.

    Args:
        length: tokens each request comes to hold in the end, prompt and output; shape ``[n]``.
        asked: tokens each request reserves; ``None`` where blocks are taken as they are needed.
    """
    holders = np.zeros(len(length) + 1, HOLDER)
    holders["length"][:-1] = length
    holders["asked"][:-1] = np.iinfo(np.int32).max if asked is None else asked
    size = int(log.header["groups"][0]["block_size"])
    refs = np.zeros(int(log.header["num_blocks"]), np.int32)
    use, busy, after = (np.zeros(n, USE).view(np.recarray) for n in (1, len(log.steps), len(log.steps)))
    events = np.asarray(log.events).view(np.recarray)
    fold(events, turn_starts(log), size, holders.view(np.recarray), refs, use[0], busy, after)
    return busy.view(np.ndarray), after.view(np.ndarray)
