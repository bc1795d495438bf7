"""What happened in the shown step, event by event, in the engine's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from simkv.events import layout as ev
from simkv.events.export.columns import BLOCK_KINDS
from simkv.events.log import EventLog
from simkv.ui import cursor, text
from simkv.ui.shown import Shown

ROWS = 2000

SENTENCES = {
    ev.ARRIVED: "entered the waiting queue",
    ev.ALLOCATED: "took block {arg} from the head of the free queue; it held nothing cached",
    ev.RECYCLED: "took block {arg} from the head of the free queue; its cached content was evicted",
    ev.HIT: "found block {arg} in the cache and holds it now",
    ev.RELEASED: "let go of block {arg}, which others hold or the cache keeps",
    ev.FREED_FRONT: "let go of block {arg}, which went to the head of the free queue (next victim)",
    ev.FREED_BACK: "let go of block {arg}, which went to the tail of the free queue",
    ev.STORE: "has {arg} full blocks now; the new ones enter the prefix cache",
    ev.STORED: "stored block {arg} in the prefix cache",
    ev.STORED_EXTRA: "stored a second key of block {arg}",
    ev.REMOVED_EXTRA: "evicted the second key of block {arg}",
    ev.CLEARED: "the prefix cache was reset: all keys are gone",
    ev.ADMITTED: "was admitted with {arg} tokens from the cache",
    ev.RESUMED: "was admitted again after a preemption, with {arg} tokens from the cache",
    ev.SCHEDULED: "computes {arg} tokens",
    ev.SKIPPED: "starts its table with {arg} null blocks, left of the sliding window",
    ev.TRIMMED: "replaced its first {arg} blocks by the null block: the window moved on",
    ev.PREEMPTED: "was preempted; its blocks were released",
    ev.FIRST_TOKEN: "produced its first token",
    ev.FINISHED: "finished; its blocks were released",
    ev.ABORTED: "was aborted",
    ev.RESET_FAILED: "the reset of the prefix cache was refused: blocks are in use",
    ev.EVICTED: "block {arg} was evicted from the radix tree and went to the tail of the free list",
    ev.ADOPTED: "its table follows the cache from block {arg} on: duplicates were freed",
    ev.HOST_STORED: "host chunk {arg} holds its content from now on",
    ev.HOST_REMOVED: "host chunk {arg} was evicted",
    ev.LOAD_STARTED: "ordered a copy of {arg} blocks from the host",
    ev.LOADED: "{arg} blocks arrived from the host",
    ev.STORE_STARTED: "ordered a copy of {arg} chunks to the host",
    ev.HOST_CLEARED: "the host tier was emptied",
    ev.COPIED: "wrote to a copy of a shared block: {arg}",
    ev.WRITTEN: "has written {arg} blocks of its reservation",
}
BLOCK_EVENTS = frozenset(BLOCK_KINDS)


def sentence(kind: int, arg: int) -> str:
    """An event in words, without its request."""
    words = SENTENCES[kind].format(arg=f"{arg:,}")
    return words.replace("1 tokens", "1 token").replace("1 full blocks", "1 full block") if arg == 1 else words


def columns(
    shown: Shown, log: EventLog, first: int, last: int, kinds: frozenset[int] | None = None, most: int = ROWS
) -> tuple[dict[str, list[Any]], int]:
    """The events of steps ``first … last`` as columns, at most ``most`` of them, and how many there are.

    Args:
        kinds: only these kinds; ``None`` takes all.
    """
    name = shown.run.workload.id
    span = slice(log.turn_slice(first).start, log.turn_slice(last).stop)
    rows = log.events[span]
    what = rows["kind"] & ev.KIND_MASK
    at = np.arange(span.start, span.stop)
    if kinds is not None:
        keep = np.isin(what, list(kinds))
        rows, what, at = rows[keep], what[keep], at[keep]
    total = len(rows)
    rows, what = rows[:most], what[:most]
    steps = np.searchsorted(log.steps["first_event"], at[:most], side="right") - 1
    return {
        "step": steps.tolist(),
        "event": [ev.KIND_NAMES[int(k)] for k in what],
        "request": [name(int(r)) if r >= 0 else "" for r in rows["req"]],
        "what happened": [sentence(int(k), int(a)) for k, a in zip(what, rows["arg"], strict=True)],
        "block": [int(a) if int(k) in BLOCK_EVENTS else None for k, a in zip(what, rows["arg"], strict=True)],
    }, total


FILTERS: dict[str, frozenset[int] | None] = {
    "all": None,
    "blocks": BLOCK_EVENTS,
    "evictions": frozenset((ev.RECYCLED, ev.REMOVED_EXTRA, ev.CLEARED)),
    "requests": frozenset((ev.ARRIVED, ev.ADMITTED, ev.RESUMED, ev.SCHEDULED, ev.PREEMPTED, ev.FIRST_TOKEN, ev.FINISHED, ev.ABORTED)),
}


def draw(shown: Shown, log: EventLog, step: int) -> None:
    """Draw the tab."""
    first = shown.frame_first_step(step)
    chosen = st.segmented_control(
        "Which events", list(FILTERS), default="all", required=True, key="event_filter", label_visibility="collapsed"
    )
    data, total = columns(shown, log, first, step, FILTERS[str(chosen)])
    rows = shown.run.steps[first : step + 1]
    which = f"Step {step:,}" if first == step else f"Steps {first:,} to {step:,} (one frame of the map)"
    when = (
        f", {text.clock(float(rows['time'][0]))} on for {text.seconds(float(rows['duration'].sum()))}"
        if shown.time_unit == "seconds"
        else ""
    )
    st.caption(
        f"{which}{when}: {text.counted(int(rows['prefill'].sum()), 'prefill token')}, "
        f"{text.counted(int(rows['decode'].sum()), 'decode')}; at the end {text.counted(int(rows['running'][-1]), 'request')} running, "
        f"{int(rows['waiting'][-1]):,} waiting. {text.counted(total, 'event')}."
    )
    if not total:
        st.info("Nothing of this kind happened in this step.")
        return
    key = f"events_{shown.digest}_{step}_{chosen}"

    def pick() -> None:
        rows = st.session_state[key].selection.rows
        if rows and data["block"][rows[0]] is not None:
            cursor.move(shown, block=data["block"][rows[0]])

    st.dataframe(
        data,
        hide_index=True,
        height=300,
        on_select=pick,
        selection_mode="single-row",
        key=key,
        placeholder="",
        alt="Events of the shown frame",
        column_config={
            "block": st.column_config.NumberColumn(format="localized"),
            "what happened": st.column_config.TextColumn(width="large"),
        },
    )
    if total > ROWS:
        st.caption(f"The first {ROWS:,}. The whole log is in the export of `simkv replay --out`.")
