"""What the block map's browser side receives: one binary blob (history.js reads it)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def payload(encoded: bytes, meta: Mapping[str, Any]) -> bytes:
    """An encoded history and what the browser must know about it.

    Args:
        encoded: ``simkv.events.folds.block_map.encode``'s bytes.
        meta: ``run`` (identity of the run), ``start`` (frame to open at), ``time_unit`` ("seconds" or "steps"), ``t0``
            (seconds the clock counts from), ``height`` (CSS pixels of the map).

    Identical bytes are sent once per browser, so keep the result and pass the same object again.
    """
    return encoded + json.dumps(dict(meta)).encode()
