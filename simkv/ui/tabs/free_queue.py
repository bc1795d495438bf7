"""The free queue, head first: which block dies next, what it holds, how long it has been idle."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from simkv.events.folds.pool import PoolState
from simkv.ui import cursor, details, text
from simkv.ui.shown import Shown

ROWS = 500


def rows(shown: Shown, state: PoolState, most: int = ROWS) -> dict[str, list[Any]]:
    """The first ``most`` entries of the queue as columns."""
    queue = state.free_queue()[:most]
    cached = state.key[queue] != 0
    writer = state.writer[queue]
    name = shown.run.workload.id
    return {
        "place": list(range(1, len(queue) + 1)),
        "block": queue.tolist(),
        "allocations before it": list(range(len(queue))),
        "written by": [name(int(w)) if c and w >= 0 else "" for w, c in zip(writer, cached, strict=True)],
        "holds tokens": [details.token_range(shown, state, int(b)) if c else "" for b, c in zip(queue, cached, strict=True)],
        "idle": [details.idle(shown, state, int(b)) for b in queue],
        "hash": [text.key_hex(int(k)) if k else "" for k in state.key[queue]],
    }


RELEASES = {
    "sglang": "Content of the radix tree is not in this list: a released page stays cached beside it, and enters at the tail when its"
    " leaf is evicted.",
    "contiguous": "The list is in order of release, and nothing stays cached.",
    "vllm-v0": "V0's list is a stack: a released block goes to the head and is the next to be taken. Nothing stays cached.",
}


def taken(shown: Shown) -> str:
    """How the next block is chosen, in words."""
    if shown.run.resolved.engine == "contiguous":
        return "An allocator looks for an unbroken piece by address; age and place in this list do not matter."
    return "The engine takes the next block from the head (place 1) and evicts what it held."


def released(shown: Shown) -> str:
    """Where the release puts the blocks of a request that lets go of them, in words."""
    r = shown.run.resolved
    if r.engine != "vllm":
        return RELEASES.get(r.engine, "Released blocks go to the tail.")
    to_front = r.profile.unhashed_to_front if r.enable_prefix_caching else r.profile.caching_off_to_front
    if not r.enable_prefix_caching:
        return f"With caching off nothing is cached, and released blocks go to the {'head' if to_front else 'tail'}."
    tail = "go to the tail, deepest first, so the head of a prompt dies last"
    if to_front:
        return f"A released request's cached blocks {tail}; those without a hash go to the head, to be taken next."
    return f"A released request's blocks {tail}."


def draw(shown: Shown, state: PoolState) -> None:
    """Draw the tab."""
    queue = state.free_queue()
    cached = int(np.count_nonzero(state.key[queue]))
    st.caption(
        f"{text.counted(len(queue), 'block')}, {cached:,} of them still cached. {taken(shown)} {released(shown)}"
        " Select a row to see it on the map."
    )
    if not len(queue):
        st.info("The free queue is empty: every block is held by a running request.")
        return
    columns = rows(shown, state)
    key = f"free_queue_{shown.digest}_{state.step}"

    def pick() -> None:
        chosen = st.session_state[key].selection.rows
        if chosen:
            cursor.move(shown, block=columns["block"][chosen[0]])

    st.dataframe(
        columns,
        hide_index=True,
        height=300,
        on_select=pick,
        selection_mode="single-row",
        key=key,
        alt="Free queue in order of eviction",
        column_config={name: st.column_config.NumberColumn(format="localized") for name in ("block", "allocations before it")},
    )
    if len(queue) > ROWS:
        st.caption(f"The first {ROWS:,} places. Click a block on the map for its own place.")
