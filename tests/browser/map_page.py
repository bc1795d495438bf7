"""A page with nothing but a block map of any size: for measuring."""

import numpy as np
import streamlit as st

from simkv.ui.block_map.component import block_map
from simkv.ui.block_map.payload import payload

n = int(st.query_params.get("n", 100_000))
frames, per_frame = 1000, 2000


@st.cache_resource
def history(n: int) -> bytes:
    """``frames`` frames of ``per_frame`` changes each, in the encoding of simkv.events.folds.block_map."""
    random = np.random.default_rng(0)
    first = np.zeros(n, np.uint8)
    first[0] = 4
    offsets = (np.arange(frames) * per_frame).astype("<u4")
    changes = int(offsets[-1])
    index = (1 + (np.arange(changes) * 7 // 5 + random.integers(0, per_frame, changes)) % (n - 1)).astype("<u4")
    state = random.choice(np.array([1, 2, 2, 3, 5, 1], np.uint8), changes)
    body = np.array([n, frames, changes], "<u4").tobytes() + offsets.tobytes() + index.tobytes() + first.tobytes() + state.tobytes()
    body += b"\0" * (-len(body) % 8)
    body += (np.arange(frames) * 1.7).tobytes() + np.arange(frames, dtype="<u4").tobytes()
    return payload(body, {"run": str(n), "start": 0, "time_unit": "seconds", "t0": 0, "height": 400})


block_map(history(n), key="map", on_select=lambda: None, on_frame=lambda: None)
