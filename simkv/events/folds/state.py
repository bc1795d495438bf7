"""What a fold over the log knows at one moment: blocks, free queue, block tables, as flat arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simkv.events.log import EventLog

BLOCK = np.dtype(
    [
        ("key", "u8"),  # 0 = holds nothing cached
        ("ref", "i4"),
        ("next", "i4"),  # free queue, circular; block 0 is the sentinel
        ("prev", "i4"),
        ("writer", "i4"),  # request that stored the key, -1
        ("position", "i4"),  # logical block index in the writer's prompt and output
        ("since", "i4"),  # turn of the last change, -1
        ("touched", "i4"),  # frame that last listed the block as changed
        ("evicted", "i4"),  # turn in which its key last left, -1
    ],
    align=True,
)
SLOT = np.dtype([("req", "i4"), ("order", "i4")])
TABLE = np.dtype([("length", "i4"), ("stored", "i4")])
CURSOR = np.dtype(
    [
        (name, "i8")
        for name in (
            "key",
            "free_slots",
            "admissions",
            "front",
            "front_req",
            "front_group",
            "store_at",
            "adopt_at",
            "adopt_table",
            "frame",
            "changed",
        )
    ]
)


class State(NamedTuple):
    """Where the fold stands. N blocks, S live requests at most, G groups."""

    blocks: np.ndarray  # BLOCK[N]
    group: np.ndarray  # i1[N] group the block's content belongs to
    slots: np.ndarray  # SLOT[S] live requests
    free_slots: np.ndarray  # i4[S] stack
    slot_of: np.ndarray  # i4[n] request -> slot, -1
    lengths: np.ndarray  # TABLE[S*G]
    tables: np.ndarray  # i4[S*G, W]
    sliding: np.ndarray  # bool[G]
    reserves: np.ndarray  # bool[1] the engine takes blocks before it writes to them and caches nothing
    to_front: np.ndarray  # bool[1] evicted blocks go to the head of the free queue, one by one
    changes: np.ndarray  # i4[N] blocks changed in this frame


def start(log: EventLog) -> tuple[np.void, State]:
    """State before the first row: all blocks free in ascending order."""
    h = log.header
    n, live, groups = int(h["num_blocks"]), int(h["max_live_requests"]), h["groups"]
    blocks = np.zeros(n, BLOCK).view(np.recarray)
    order = np.arange(n, dtype=np.int32)
    blocks["next"], blocks["prev"] = np.roll(order, -1), np.roll(order, 1)
    blocks["writer"], blocks["since"], blocks["touched"], blocks["evicted"] = -1, -1, -1, -1
    cursor = np.zeros(1, CURSOR).view(np.recarray)
    cursor[0].free_slots = live
    cursor[0].adopt_at = -1
    slots = np.zeros(live, SLOT).view(np.recarray)
    slots["req"] = -1
    state = State(
        blocks=blocks,
        group=np.zeros(n, np.int8),
        slots=slots,
        free_slots=np.arange(live - 1, -1, -1, dtype=np.int32),
        slot_of=np.full(int(h["requests"]) + 1, -1, np.int32),
        lengths=np.zeros(live * len(groups), TABLE).view(np.recarray),
        tables=np.empty((live * len(groups), int(h["max_blocks_per_request"])), np.int32),
        sliding=np.array([g["type"] == "sliding" for g in groups]),
        reserves=np.array([bool(h.get("reserves", False))]),
        to_front=np.array([bool(h.get("evicted_to_front", False))]),
        changes=np.zeros(n, np.int32),
    )
    return cursor[0], state
