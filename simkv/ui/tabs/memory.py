"""What the KV memory holds over time: token states and the kinds of waste. Plotly is loaded only when this tab is opened."""

from __future__ import annotations

from typing import Any

import streamlit as st

from simkv.metrics.waste import PARTS, waste_series
from simkv.ui import text
from simkv.ui.shown import Shown

POINTS = 300
COLOURS = {
    "states": "#2f6db3",
    "reserved": "#9cc3e6",
    "internal": "#d1495b",
    "rounding": "#f0a202",
    "external": "#7a1f3d",
    "idle": "#b9bec6",
}
ABOUT = (
    "Shares of the pool, stacked. states: tokens of live requests, shared ones once · reserved: room their own next tokens will"
    " take · internal: asked for and never used · rounding: added by a buddy allocator · external: free, but the first waiting"
    " request finds no piece big enough · idle: free otherwise; what is cached without a live request counts as free."
)


def columns(shown: Shown, points: int = POINTS) -> dict[str, list[float]] | None:
    """Time and the shares as columns; ``None`` where the run does not say."""
    found = waste_series(shown.run, points)
    return None if found is None else {name: values.tolist() for name, values in found.items()}


def figure(shown: Shown, step: int, data: dict[str, list[float]]) -> Any:
    """The shares as stacked areas with the shown step marked."""
    from plotly.graph_objects import Figure, Scatter

    seconds = shown.time_unit == "seconds"
    x = [v / 60 for v in data["time"]] if seconds else data["time"]
    f: Figure = Figure()
    for name in PARTS:
        look = {"color": COLOURS[name], "width": 0.5}
        f.add_trace(Scatter(x=x, y=data[name], name=name, mode="lines", line=look, stackgroup="pool", fillcolor=COLOURS[name]))
    f.add_vline(shown.timeline.time[step] / (60 if seconds else 1), line={"width": 1, "color": "#888888"})
    f.update_yaxes(tickformat=".0%", range=[0, 1])
    f.update_xaxes(title_text="simulated time (minutes)" if seconds else "step")
    f.update_layout(height=360, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": 1.12}, hovermode="x unified")
    return f


def draw(shown: Shown, step: int) -> None:
    """Draw the tab."""
    data = columns(shown)
    if data is None:
        st.info("Needs the event log of a run with one block table a request: no sliding windows, no beams.")
        return
    st.caption(ABOUT)
    mean = sum(data["states"]) / len(data["states"])
    alt = f"KV memory over time; token states take {text.percent(mean)} of the pool in the mean"
    st.plotly_chart(figure(shown, step, data), width="stretch", key="memory_chart", alt=alt)
    with st.expander("As a table"):
        st.dataframe(columns(shown, 100), hide_index=True, alt="KV memory over time as a table")
