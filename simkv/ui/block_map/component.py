"""The block map: a canvas the browser scrubs by itself. The history goes over the wire once; clicks and releases come back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

HERE = Path(__file__).resolve().parent


def _text(*names: str) -> str:
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


_MAP = st.components.v2.component(
    "simkv_block_map",
    html=_text("block_map.html"),
    css=_text("block_map.css"),
    js=_text("history.js", "painter.js", "block_map.js"),
)


def payload(encoded: bytes, meta: Mapping[str, Any]) -> bytes:
    """The component's data: an encoded history and what the browser must know about it.

    Args:
        encoded: ``simkv.events.folds.block_map.encode``'s bytes.
        meta: ``run`` (identity of the run), ``start`` (frame to open at), ``time_unit`` ("seconds" or "steps"), ``t0``
            (seconds the clock counts from), ``height`` (CSS pixels of the map).

    Identical bytes are sent once per browser, so keep the result and pass the same object again.
    """
    return encoded + json.dumps(dict(meta)).encode()


def block_map(data: bytes, *, key: str) -> tuple[dict[str, int] | None, int | None]:
    """Draw the map. Returns the clicked ``{"block", "frame"}`` and the frame the slider was last released at."""
    result = _MAP(data=data, key=key, on_sel_change=_nothing, on_frame_change=_nothing)
    return result.get("sel"), result.get("frame")


def show_on_map(seq: int, run: str, *, step: int | None = None, block: int | None = None, marks: Sequence[int] = (), label: str = "", key: str) -> None:
    """Move the map from the server: to a step, to a block, and outline ``marks`` (blocks) while that step is shown.

    Args:
        seq: grows with every wish; the same number again changes nothing.
        run: the ``run`` of :func:`payload` it is about.
    """
    data = {"seq": seq, "run": run, "step": step, "block": block, "marks": [int(b) for b in marks], "label": label}
    _MAP(data=data, key=key, height=1)


def _nothing() -> None:
    pass
