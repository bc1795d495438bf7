"""A page with nothing but a block map of any size (``?n=100000``): for measuring and for trying the map alone."""

import numpy as np
import streamlit as st

from simkv.events.folds.block_map import CACHED, EVICTED, EVICTED_LAST, IN_USE, NULL, SHARED, BlockHistory, encode
from simkv.ui.block_map.component import block_map
from simkv.ui.block_map.payload import payload

FRAMES, PER_FRAME = 1000, 2000


@st.cache_resource
def history(n: int) -> bytes:
    """``FRAMES`` frames of ``PER_FRAME`` changes each."""
    random = np.random.default_rng(0)
    first = np.zeros(n, np.uint8)
    first[0] = NULL
    offsets = (np.arange(FRAMES) * PER_FRAME).astype(np.uint32)
    changes = int(offsets[-1])
    index = (1 + (np.arange(changes) * 7 // 5 + random.integers(0, PER_FRAME, changes)) % (n - 1)).astype(np.uint32)
    states = np.array([CACHED, IN_USE, IN_USE | EVICTED, SHARED, IN_USE | EVICTED | EVICTED_LAST, CACHED], np.uint8)
    made = BlockHistory(
        np.arange(FRAMES, dtype=np.int32), np.arange(FRAMES) * np.float64(1.7), first, offsets, index, random.choice(states, changes)
    )
    return payload(encode(made), {"run": str(n), "start": 0, "time_unit": "seconds", "t0": 0, "height": 400})


def page() -> None:
    """Draw the map; an address that asks for no sensible size gets 100,000 blocks."""
    asked = st.query_params.get("n", "")
    n = int(asked) if asked.isascii() and asked.isdigit() and 2 <= len(asked) <= 7 else 100_000
    block_map(history(n), key="map", on_select=lambda: None, on_frame=lambda: None)


if __name__ == "__main__":
    page()
