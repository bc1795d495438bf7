"""Curves of all sides in one picture. Plotly is loaded only when its tab is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

from simkv.comparison import Side
from simkv.comparison.report import COLOURS
from simkv.latency import inter_token_gaps
from simkv.metrics.series import series
from simkv.ui import text

POINTS = 240
F8 = npt.NDArray[np.float64]


def over_time(sides: Sequence[Side], what: str = "hit_rate") -> dict[str, tuple[F8, F8]]:
    """``(time, value)`` of a series by side, over windows of the same length for all."""
    known = [s for s in sides if len(s.run.steps)]
    if not known:
        return {}
    window = max(float(s.run.steps["end"][-1]) for s in known) / 20
    found = {s.name: series(s.run, POINTS, window) for s in known}
    return {name: (data["time"], data[what]) for name, data in found.items()}


def spread(values: F8, counts: F8 | None = None) -> tuple[F8, F8]:
    """A distribution as a curve: ``(value, share of all at most so high)`` at up to POINTS values."""
    keep = np.isfinite(values) if counts is None else np.isfinite(values) & (counts > 0)
    values, weights = values[keep], np.ones(int(keep.sum())) if counts is None else counts[keep].astype(np.float64)
    if not len(values):
        return np.zeros(0), np.zeros(0)
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    at = np.unique(np.searchsorted(shares, np.linspace(0, 1, POINTS)).clip(0, len(order) - 1))
    return values[order][at], shares[at]


def ttft(side: Side) -> tuple[F8, F8]:
    """The distribution of time to first token, over requests."""
    return spread(side.run.requests["first_token"] - side.run.requests["arrive"])


def inter_token(side: Side) -> tuple[F8, F8]:
    """The distribution of gaps between output tokens, over tokens."""
    gaps, counts = inter_token_gaps(side.run.turns, side.run.gaps)
    return spread(gaps, counts.astype(np.float64))


def hit_rate(sides: Sequence[Side]) -> None:
    """Draw hit rate and usage over time."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    seconds = sides[0].run.workload.time_unit == "seconds"
    f: Figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.07)
    for row, what in ((1, "hit_rate"), (2, "usage")):
        for i, (name, (x, y)) in enumerate(over_time(sides, what).items()):
            line = {"color": COLOURS[i], "width": 2}
            f.add_trace(
                Scatter(x=x / 60 if seconds else x, y=_gaps(y), name=name, mode="lines", line=line, showlegend=row == 1), row=row, col=1
            )
    f.update_yaxes(tickformat=".0%", range=[0, 1.02], title_text="hit rate", row=1, col=1)
    f.update_yaxes(tickformat=".0%", range=[0, 1.02], title_text="KV usage", row=2, col=1)
    f.update_xaxes(title_text="simulated time (minutes)" if seconds else "step", row=2, col=1)
    _look(f, 400)
    last = max((float(s.run.steps["end"][-1]) for s in sides if len(s.run.steps)), default=0.0) / 20
    window = text.seconds(last) if seconds else text.counted(round(last), "step")
    st.caption(f"Hit rate: cached ÷ looked-up prompt tokens over the last {window}. KV usage: blocks of live requests ÷ usable blocks.")
    st.plotly_chart(f, width="stretch", key="compare_hit_rate", alt="Hit rate and KV usage of every side over simulated time")


def latencies(sides: Sequence[Side]) -> None:
    """Draw the distributions of TTFT and of inter-token gaps."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    f: Figure = make_subplots(rows=1, cols=2, subplot_titles=("time to first token", "inter-token gap"), horizontal_spacing=0.08)
    for i, side in enumerate(sides):
        for col, (x, y) in enumerate((ttft(side), inter_token(side)), start=1):
            line = {"color": COLOURS[i], "width": 2, "shape": "hv"}
            f.add_trace(Scatter(x=np.maximum(x, 1e-4), y=y, name=side.name, mode="lines", line=line, showlegend=col == 1), row=1, col=col)
    f.update_xaxes(type="log", ticksuffix=" s")
    f.update_yaxes(tickformat=".0%", range=[0, 1.02])
    _look(f, 350)
    st.caption("Share of requests (left) and of output tokens (right) that are at most so late. Seconds are a model, decisions are exact.")
    st.plotly_chart(f, width="stretch", key="compare_latencies", alt="Distributions of time to first token and of inter-token gaps")


def _gaps(values: F8) -> list[float | None]:
    return [v if v == v else None for v in values.tolist()]


def _look(figure: Any, height: int) -> None:
    figure.update_layout(
        height=height, margin={"l": 10, "r": 10, "t": 44, "b": 10}, legend={"orientation": "h", "y": 1.2}, hovermode="x unified"
    )
