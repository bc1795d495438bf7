"""What the block map's browser side receives: one binary blob (history.js reads it)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def payload(encoded: bytes, meta: Mapping[str, Any]) -> bytes:
    """An encoded history and what the browser must know about it: u4 length of the JSON, JSON, deflated history.

    Args:
        encoded: ``simkv.events.folds.block_map.encode``'s bytes.
        meta: ``run`` (identity of the run), ``start`` (frame to open at), ``time_unit`` ("seconds" or "steps"), ``t0``
            (seconds the clock counts from), ``height`` (CSS pixels of the map).

    Maps that share one clock also have ``group`` (its name), ``span`` (its first and last moment) and ``end`` (of the run).

    Identical bytes are sent once per browser, so keep the result and pass the same object again.
    """
    head = json.dumps(dict(meta)).encode()
    # Level 1: four times smaller in a tenth of a second, which the page's first paint gains back twice.
    return np.array([len(head)], "<u4").tobytes() + head + zlib.compress(encoded, 1)


def with_meta(blob: bytes, more: Mapping[str, Any]) -> bytes:
    """A payload with more in its ``meta``; the history is not packed again."""
    length = int(np.frombuffer(blob, "<u4", 1)[0])
    head = json.dumps({**json.loads(blob[4 : 4 + length]), **more}).encode()
    return np.array([len(head)], "<u4").tobytes() + head + blob[4 + length :]
