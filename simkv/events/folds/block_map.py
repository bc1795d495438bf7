"""The history of every block as frames of changes: what the block map draws and scrubs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.events.folds.apply import apply_rows
from simkv.events.folds.compiled import entry, inline
from simkv.events.folds.pool import turn_starts
from simkv.events.folds.state import start
from simkv.events.log import EventLog

STATES = ("free", "cached", "in use", "shared", "null", "reserved")
"""``cached``: unreferenced, its content can still be hit. ``reserved``: taken, but nothing is written to it yet."""
FREE, CACHED, IN_USE, SHARED, NULL, RESERVED = range(6)
STATE_MASK = 7
EVICTED = 8
"""Bit beside the state: the block's key left the cache in one of the turns the frame sums up."""
EVICTED_LAST = 16
"""Bit beside the state and ``EVICTED``: it left in the very turn the frame shows."""
MOST_CHANGES = 6_000_000
"""Changes kept (5 bytes each); a longer history gets fewer frames."""


@dataclass(frozen=True, eq=False)
class BlockHistory:
    """Frames of block states: the first in full, then changes.

    Args:
        frames: turn shown by each frame, i4[T]; the last turn is always among them.
        times: simulated time of the frame, f8[T].
        first: every block in frame 0, u1[N]: its state and the bits EVICTED and EVICTED_LAST.
        offsets: u4[T]; changes of frame t >= 1 are ``offsets[t-1] … offsets[t]``, ``offsets[0] = 0``.
        index: u4[K] block.
        state: u1[K] the same of the changed block, from this frame on.
    """

    frames: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]
    first: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint32]
    index: npt.NDArray[np.uint32]
    state: npt.NDArray[np.uint8]

    def states_at(self, frame: int) -> npt.NDArray[np.uint8]:
        """State and bits of every block in a frame."""
        out = self.first.copy()
        for t in range(1, frame + 1):
            span = slice(int(self.offsets[t - 1]), int(self.offsets[t]))
            out[self.index[span]] = self.state[span]
        return out


@inline
def state_of(block, reserves, before, turn):  # type: ignore[no-untyped-def]
    """State and bits in a frame that sums up the turns ``before+1 … turn``."""
    if block.ref > 1:
        state = SHARED
    elif block.ref == 1:
        state = RESERVED if reserves and block.key == 0 else IN_USE
    else:
        state = CACHED if block.key != 0 else FREE
    if block.evicted == turn:
        return state | EVICTED | EVICTED_LAST
    return state | EVICTED if block.evicted > before else state


@inline
def list_again(s, c, b):  # type: ignore[no-untyped-def]
    """A block that was evicted in the frame before is looked at again, changed or not: its bits are to go."""
    if s.blocks[b].touched != c.frame:
        s.blocks[b].touched = c.frame
        s.changes[c.changed] = b
        c.changed += 1


@entry
def build(s, c, events, keys, firsts, frames, shown, first_frame, red, offsets, index, state):  # type: ignore[no-untyped-def]
    """Fill ``first_frame``, then ``index``, ``state``, ``offsets`` with the changes of the others.

    Returns the number of changes, -1 if there are more than ``index`` holds. ``red`` is room for i4[N].
    """
    k, turn, reds, before = 0, 0, 0, -1
    for frame in range(frames.size):
        c.frame = frame
        c.changed = 0
        for i in range(reds):
            list_again(s, c, red[i])
        while turn <= frames[frame]:
            apply_rows(s, c, events, keys, firsts[turn], firsts[turn + 1], turn)
            turn += 1
        if k + c.changed > index.size:
            return -1
        reds = 0
        for i in range(c.changed):
            b = s.changes[i]
            now = state_of(s.blocks[b], s.reserves[0], before, frames[frame])
            if now & EVICTED:
                red[reds] = b
                reds += 1
            if now != shown[b]:
                shown[b] = now
                if frame > 0:
                    index[k] = b
                    state[k] = now
                    k += 1
        before = frames[frame]
        offsets[frame] = k
        if frame == 0:
            for b in range(shown.size):
                first_frame[b] = shown[b]
    return k


def block_history(log: EventLog, max_frames: int = 2000, most_changes: int = MOST_CHANGES) -> BlockHistory:
    """The log as at most ``max_frames`` frames, spread evenly over the turns.

    A history with more than ``most_changes`` changes gets half as many frames, again until it fits.
    """
    turns = len(log.steps)
    firsts = turn_starts(log)
    events, keys = np.asarray(log.events).view(np.recarray), np.asarray(log.keys)
    wanted = max(1, min(max_frames, turns))
    while True:
        frames = np.unique(np.linspace(turns - 1, 0, wanted).astype(np.int64)) if turns else np.zeros(0, np.int64)
        cursor, state = start(log)
        n = len(state.blocks)
        shown = np.zeros(n, np.uint8)
        shown[0] = NULL
        room = min(most_changes, len(log.events) + 1) if wanted > 1 else len(log.events) + 1
        first, red = np.zeros(n, np.uint8), np.zeros(n, np.int32)
        offsets, index, states = np.zeros(len(frames), np.uint32), np.empty(room, np.uint32), np.empty(room, np.uint8)
        count = build(state, cursor, events, keys, firsts, frames, shown, first, red, offsets, index, states) if turns else 0
        if count >= 0:
            break
        wanted = max(1, wanted // 2)
    if not turns:
        first = shown
    times = log.steps["time"][frames] if turns else np.zeros(0)
    return BlockHistory(frames.astype(np.int32), np.asarray(times, np.float64), first, offsets, index[:count].copy(), states[:count].copy())


def encode(history: BlockHistory) -> bytes:
    """One little-endian blob for the browser: u4 n, T, K; offsets; index; first; state; padding to 8; times; frames."""
    head = np.array([len(history.first), len(history.frames), len(history.index)], "<u4").tobytes()
    body = head + history.offsets.astype("<u4").tobytes() + history.index.astype("<u4").tobytes()
    body += history.first.tobytes() + history.state.tobytes()
    body += b"\0" * (-len(body) % 8)
    return body + history.times.astype("<f8").tobytes() + history.frames.astype("<u4").tobytes()
