"""The map as a table: every block's state at the shown step, for reading, sorting and screen readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from simkv.events.folds.pool import PoolState
from simkv.ui import text
from simkv.ui.shown import Shown

ROWS = 100_000


def columns(shown: Shown, state: PoolState, most: int = ROWS) -> dict[str, Any]:
    """The first ``most`` blocks as columns."""
    n = min(most, state.num_blocks)
    ref, key = state.ref[:n], state.key[:n]
    names = np.array(["free", "cached", "in use", "shared", "null"], dtype=object)
    which = np.where(ref > 1, 3, np.where(ref == 1, 2, np.where(key != 0, 1, 0)))
    which[0] = 4
    place = np.zeros(state.num_blocks, np.int64)
    queue = state.free_queue()
    place[queue] = np.arange(1, len(queue) + 1)
    writer = np.where(key != 0, state.writer[:n], -1)
    return {
        "block": np.arange(n),
        "state": names[which],
        "ref_cnt": np.where(np.arange(n) == 0, 0, ref),
        "place in free queue": [int(p) if p else None for p in place[:n]],
        "written by": [shown.run.workload.id(int(w)) if w >= 0 else "" for w in writer],
        "logical": [int(p) if w >= 0 else None for p, w in zip(state.position[:n], writer, strict=True)],
        "hash": [text.key_hex(int(k)) if k else "" for k in key],
    }


def draw(shown: Shown, state: PoolState) -> None:
    """Draw the tab."""
    st.caption("The block map as a table, at the shown step. Sort by a column's head; search with the magnifier.")
    st.dataframe(columns(shown, state), hide_index=True, height=320, placeholder="", alt="State of every block at the shown step")
    if state.num_blocks > ROWS:
        st.caption(f"The first {ROWS:,} blocks.")
