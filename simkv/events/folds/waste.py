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
from simkv.events.log import EventLog
from simkv.events.packed import IN_RUNS

HOLDER = np.dtype([("blocks", "i4"), ("tokens", "i4"), ("loaded", "i4"), ("length", "i4"), ("asked", "i4")])
USE = np.dtype([(name, "i8") for name in ("held", "reserved", "internal", "rounding", "holders")])
"""One row a turn. ``held``: blocks of live requests, shared ones once; ``reserved``, ``internal``, ``rounding``: tokens;
``holders``: requests that hold blocks."""


@inline
def count_in(use, holder, size, sign):  # type: ignore[no-untyped-def]
    """Add (or take away, ``sign`` -1) what one request leaves unused."""
    if holder.blocks == 0:
        return
    room = holder.blocks * size
    written = min(holder.tokens + holder.loaded * size, room)
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
def move_blocks(use, holder, refs, kind, blocks, first, last, size, adopting):  # type: ignore[no-untyped-def]
    """Blocks of one run of events come to a request or leave it; those that replace others of its table add none."""
    if kind == ev.ALLOCATED or kind == ev.RECYCLED or kind == ev.HIT:
        for k in range(first, last):
            take(use, refs, blocks[k])
        if not adopting:
            count_in(use, holder, size, -1)
            holder.blocks += last - first
            if kind == ev.HIT:  # a request that waits for a transfer is admitted later, but these are full already
                holder.tokens += (last - first) * size
            count_in(use, holder, size, 1)
    elif kind == ev.RELEASED or kind == ev.FREED_FRONT or kind == ev.FREED_BACK:
        for k in range(first, last):
            let_go(use, refs, blocks[k], kind)


@inline
def copy(use, row):  # type: ignore[no-untyped-def]
    row.held = use.held
    row.reserved = use.reserved
    row.internal = use.internal
    row.rounding = use.rounding
    row.holders = use.holders


@inline
def tell(use, holder, kind, arg, size):  # type: ignore[no-untyped-def]
    """A row about a request: how many tokens it has, or that it holds nothing any more."""
    if kind == ev.ADMITTED or kind == ev.RESUMED or kind == ev.SCHEDULED:
        count_in(use, holder, size, -1)
        holder.tokens = arg + (holder.tokens if kind == ev.SCHEDULED else 0)
        count_in(use, holder, size, 1)
    elif kind == ev.LOADED:
        count_in(use, holder, size, -1)
        holder.loaded += arg
        count_in(use, holder, size, 1)
    elif kind == ev.PREEMPTED or kind == ev.FINISHED or kind == ev.ABORTED:
        count_in(use, holder, size, -1)
        holder.blocks = 0
        holder.tokens = 0
        holder.loaded = 0


@entry
def fold(rows, blocks, in_runs, firsts, size, holders, refs, use, busy, after):  # type: ignore[no-untyped-def]
    """Fill ``busy`` and ``after``, one row a turn each: how things stand while its tokens are computed, and behind it.

    They are computed after its last SCHEDULED row (what follows is the output, with which memory is freed); a turn without
    one leaves things as they were. ``rows`` and ``blocks`` are packed (simkv/events/packed.py).
    """
    i, block, taken, seen = 0, 0, 0, 0
    adopting = False
    for turn in range(busy.size):
        copy(use, busy[turn])
        while seen < firsts[turn + 1]:
            row = rows[i]
            kind = row.kind & ev.KIND_MASK
            if in_runs[row.kind]:
                count = min(row.arg - taken, firsts[turn + 1] - seen)
                adopting = adopting and kind == ev.HIT
                move_blocks(use, holders[row.req], refs, kind, blocks, block, block + count, size, adopting)
                block += count
                seen += count
                taken += count
                if taken == row.arg:
                    taken = 0
                    i += 1
                continue
            adopting = kind == ev.ADOPTED
            tell(use, holders[row.req], kind, row.arg, size)
            if kind == ev.SCHEDULED:
                copy(use, busy[turn])
            seen += 1
            i += 1
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
    firsts = np.append(log.steps["first_event"], len(log)).astype(np.int64)
    rows, blocks = np.asarray(log.rows).view(np.recarray), np.asarray(log.blocks)
    fold(rows, blocks, IN_RUNS, firsts, size, holders.view(np.recarray), refs, use[0], busy, after)
    return busy.view(np.ndarray), after.view(np.ndarray)
