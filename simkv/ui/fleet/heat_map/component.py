"""Rows and columns of coloured cells on a canvas. All measures go over the wire once; a click on a row comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing the colours can show.

    Args:
        name, about: on its button, and its definition one hover away.
        values: shape ``[rows, columns]``; NaN where nothing was measured.
        format: ``percent``, ``count``, ``rate`` or ``seconds``.
        scale: ``blue`` (more is better, or neither) or ``orange`` (load).
        high: where the colours end; default the largest value, or 1 for shares.
    """

    name: str
    about: str
    values: npt.NDArray[np.float64]
    format: str = "count"
    scale: str = "blue"
    high: float | None = None

    @property
    def largest(self) -> float:
        """The largest value; 0 without any."""
        return float(np.nanmax(self.values)) if np.isfinite(self.values).any() else 0.0

    @property
    def top(self) -> float:
        """Where the colours end."""
        return self.high if self.high is not None else self.largest or 1.0


_MAP = st.components.v2.component(
    "simkv_heat_map",
    html=(HERE / "heat_map.html").read_text(encoding="utf-8"),
    css=(HERE / "heat_map.css").read_text(encoding="utf-8"),
    js=(HERE / "heat_map.js").read_text(encoding="utf-8"),
)


def blob(rows: Sequence[str], measures: Sequence[Measure], more: Mapping[str, Any]) -> bytes:
    """What the browser gets (heat_map.js reads it).

    Args:
        rows: labels of the rows.
        more: ``title`` (for screen readers), ``what`` a row is, ``height`` in CSS pixels, ``note``. Of a map over time: ``span``,
            ``unit``, ``stretches``, and the ``group`` of maps that show the same measure. Of any other: the columns' ``names``,
            what a ``column`` is, and with ``figures`` the values as numbers as well.
    """
    told = [
        {"name": m.name, "about": m.about, "format": m.format, "scale": m.scale, "low": 0.0, "high": m.top, "more": m.largest > m.top}
        for m in measures
    ]
    columns = int(measures[0].values.shape[1])
    data = np.stack([m.values for m in measures]).astype("<f4").tobytes()
    meta = {"rows": list(rows), "columns": columns, "measures": told, **more}
    meta["id"] = hashlib.sha256(json.dumps(meta).encode() + data).hexdigest()[:16]
    head = json.dumps(meta).encode()
    return np.array([len(head)], "<u4").tobytes() + head + b"\0" * (-len(head) % 4) + data


def heat_map(data: bytes, *, key: str, on_row: Callable[[], None]) -> None:
    """Draw the map; ``st.session_state[key]`` then holds ``row`` when ``on_row`` is called."""
    _MAP(data=data, key=key, on_row_change=on_row)
