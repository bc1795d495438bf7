"""The columns of the event log. Written by the compiled engines, read by every fold; numpy only.

One row per event, 9 bytes: ``req``, ``arg``, ``kind``; the time, replica and step come from the step table, whose rows
say where each step's events begin. The low 5 bits of ``kind`` say what happened, the high 3 bits name the KV group.
Keys (64-bit chain keys) stand only where content enters a cache: one entry in ``keys`` per STORED, STORED_EXTRA or
HOST_STORED row, in order.

Placement is logged, not implied: a released block says at which end of the free queue it went, so a fold needs no
engine's policy. The rows RELEASED, FREED_FRONT and FREED_BACK of one request and group that follow each other are one
release: its blocks keep their order, also at the head of the queue.
"""

from __future__ import annotations

import numpy as np

EVENT = np.dtype([("req", "i4"), ("arg", "i4"), ("kind", "u1")])
STEP = np.dtype(
    [
        ("time", "f8"),  # seconds at schedule(), or the step index in step mode
        ("duration", "f8"),  # seconds this step's batch takes on the device
        ("end", "f8"),  # when its output had been processed
        ("first_event", "i8"),  # row of the step's first event in the log (0 while the log is off)
        ("queries", "i8"),  # prompt tokens looked up at admissions of this step (vllm:prefix_cache_queries)
        ("hits", "i8"),  # of those, tokens found cached
        ("recompute_queries", "i8"),  # the same for requests admitted again after a preemption
        ("recompute_hits", "i8"),
        ("schedule", "i4"),  # index of the engine's schedule() call, -1 when this turn of the loop made none
        ("prefill", "i4"),  # tokens scheduled that are not decode
        ("decode", "i4"),  # requests decoding one token
        ("running", "i4"),  # after schedule()
        ("waiting", "i4"),
        ("free", "i4"),  # blocks in the free queue after schedule(); cached but unreferenced ones are free
        ("cached", "i4"),  # keys in the prefix cache after the step
        ("stored", "i4"),  # blocks that entered the prefix cache in this step
        ("removed", "i4"),  # blocks whose key was evicted in this step
        ("admitted", "i4"),
        ("preempted", "i4"),
        ("finished", "i4"),
        ("cadence", "i4"),  # tokens whose predecessor came out of the batch before: their inter-token gap is end - end[before]
        ("turns", "i4"),  # turns the row stands for while the table is packed (simkv/events/turns.py), else 1
    ],
    align=True,
)
"""One row per turn of the engine's loop. With async scheduling ``end``, ``finished`` and ``cadence`` are the row's own
batch's, although its output is processed one turn later."""
TICK = np.dtype([("time", "f8"), ("duration", "f8"), ("end", "f8")])
"""Between two turns that share a STEP row: when the one ended; when the other began, and how long its batch takes."""
LAST_INDEX = (1 << 31) - 1
"""Of a schedule() call in a STEP row; arrivals in step mode may lie beyond."""
GAP = np.dtype([("gap", "f8"), ("step", "i4"), ("req", "i4")])
"""Inter-token gaps that are not one step long (a prefill of others in between, a preemption)."""

# What happened. ``arg`` in brackets.
ARRIVED = 0  #  request entered the waiting queue
ALLOCATED = 1  # [block] taken from the head of the free queue; it held nothing cached
RECYCLED = 2  # [block] taken from the head; its key left the prefix cache (BlockRemoved)
HIT = 3  # [block] found in the cache and referenced; without a request (-1) by a copy to or from host memory
RELEASED = 4  # [block] one reference less; others remain, or its content stays cached outside the free queue (radix tree)
FREED_FRONT = 5  # [block] last reference gone, block went to the head of the free queue (next victim)
FREED_BACK = 6  # [block] last reference gone, block went to the tail
STORE = 7  # [number of full blocks now] header of one BlockStored: the request's full blocks of this group grew
STORED = 8  # [block] its key entered the prefix cache; the key is the next entry of ``keys``
STORED_EXTRA = 9  # [block] a second key inside a bigger block (hybrid models)
REMOVED_EXTRA = 10  # [block] that second key left; follows the block's RECYCLED
CLEARED = 11  # [0] reset_prefix_cache succeeded: all keys gone, the queue keeps its order; [AS_NEW] the process started again
ADMITTED = 12  # [hit tokens] first admission
RESUMED = 13  # [hit tokens] admission after a preemption
SCHEDULED = 14  # [tokens]
SKIPPED = 15  # [blocks] the group's table starts with this many null blocks (left of a sliding window)
TRIMMED = 16  # [blocks] the first so many entries of the group's table are null from now on (released in the rows before)
PREEMPTED = 17  # its blocks were released (rows before this one)
FIRST_TOKEN = 18
FINISHED = 19  # its blocks were released (rows before this one)
ABORTED = 20
RESET_FAILED = 21  # reset_prefix_cache refused: blocks are in use
EVICTED = 22  # [block] unreferenced and cached outside the free queue: its key left, it went to the tail (header evicted_to_front: head)
ADOPTED = 23  # [position] header: the blocks taken by the rows that follow overwrite the request's table from here on
HOST_STORED = 24  # [chunk] the host tier holds this content from now on; the key is the next entry of ``keys``
HOST_REMOVED = 25  # [chunk] evicted from the host tier
LOAD_STARTED = 26  # [blocks] a copy from host to device was ordered; the request's last so many blocks are its target
LOADED = 27  # [blocks] that copy is done
STORE_STARTED = 28  # [chunks] a copy from device to host was ordered
HOST_CLEARED = 29  # everything left the host tier
COPIED = 30  # [block] copy-on-write: this block now holds a copy of a shared one
WRITTEN = 31  # [blocks] so many blocks of the request's reservation hold states (engines that reserve ahead)

AS_NEW = 1
"""Of CLEARED: whatever was there is gone, the pool is as at the start, in its first order."""

KIND_NAMES = (
    "arrived",
    "allocated",
    "recycled",
    "hit",
    "released",
    "freed_front",
    "freed_back",
    "store",
    "stored",
    "stored_extra",
    "removed_extra",
    "cleared",
    "admitted",
    "resumed",
    "scheduled",
    "skipped",
    "trimmed",
    "preempted",
    "first_token",
    "finished",
    "aborted",
    "reset_failed",
    "evicted",
    "adopted",
    "host_stored",
    "host_removed",
    "load_started",
    "loaded",
    "store_started",
    "host_cleared",
    "copied",
    "written",
)
KIND_BITS = 5
KIND_MASK = (1 << KIND_BITS) - 1
MAX_GROUPS = 1 << (8 - KIND_BITS)
