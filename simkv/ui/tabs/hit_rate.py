"""Hit rate, usage and evictions over time. Plotly is loaded only when this tab is opened."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from simkv.ui import text
from simkv.ui.shown import Shown

POINTS = 300


def columns(shown: Shown, points: int = POINTS) -> dict[str, list[Any]]:
    """The curves as columns; ``None`` where there is no data."""
    data, t = shown.curves(points), shown.timeline
    per = "s" if shown.time_unit == "seconds" else "step"
    named = {
        f"hit rate, {t.window_name}": "hit_rate",
        "hit rate, last 1,000 requests": "hit_rate_last_1000",
        "hit rate since the start": "hit_rate_total",
        "KV usage, live requests": "usage",
        f"evictions / {per}, {t.window_name}": "evictions_per_s",
    }
    return {
        "time": data["time"].tolist(),
        **{name: [v if math.isfinite(v) else None for v in data[c].tolist()] for name, c in named.items()},
    }


def figure(shown: Shown, step: int) -> Any:
    """The curves as a Plotly figure with the shown step marked."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    data = columns(shown)
    seconds = shown.time_unit == "seconds"
    x = [v / 60 for v in data["time"]] if seconds else data["time"]
    names = list(data)[1:]
    f: Figure = make_subplots(rows=3, cols=1, shared_xaxes=True, row_heights=[0.5, 0.22, 0.28], vertical_spacing=0.06)
    looks: tuple[tuple[str, str, int], ...] = (
        ("#2f6db3", "solid", 1),
        ("#f0a202", "dot", 1),
        ("#6fa8d8", "dash", 1),
        ("#14748a", "solid", 2),
        ("#d1495b", "solid", 3),
    )
    for name, (colour, dash, row) in zip(names, looks, strict=True):
        f.add_trace(Scatter(x=x, y=data[name], name=name, mode="lines", line={"color": colour, "dash": dash, "width": 2}), row=row, col=1)
    if math.isfinite(shown.ceiling):
        f.add_hline(
            shown.ceiling,
            line={"dash": "dash", "width": 1, "color": "#888888"},
            annotation_text="no evictions",
            annotation_position="top left",
            row=1,
            col=1,
        )
    now = shown.timeline.time[step] / (60 if seconds else 1)
    f.add_vline(now, line={"width": 1, "color": "#888888"})
    f.update_yaxes(tickformat=".0%", rangemode="tozero", row=1, col=1)
    f.update_yaxes(tickformat=".0%", range=[0, 1.02], row=2, col=1)
    f.update_yaxes(rangemode="tozero", row=3, col=1)
    f.update_xaxes(title_text="simulated time (minutes)" if seconds else "step", row=3, col=1)
    f.update_layout(height=420, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": 1.12}, hovermode="x unified")
    return f


def draw(shown: Shown, step: int) -> None:
    """Draw the tab."""
    t = shown.timeline
    each = ", every lookup of a waiting request counted anew as this release does" if shown.run.resolved.stats_at_lookup else ""
    best = " Level grey line: the whole run with a pool that never evicts." if math.isfinite(shown.ceiling) else ""
    st.caption(
        f"Hit rate = cached ÷ looked-up prompt tokens{each}. “{t.window_name}” is what a dashboard's rate() shows, “last 1,000 requests” "
        f"the engine's log line, “since the start” the raw counters divided, which hides a decline.{best} Upright line: the shown step."
    )
    part = "the whole run" if shown.run.status == "complete" else "the part replayed"
    alt = f"Hit rate over time; over {part} {text.percent(shown.counted_hit_rate)}"
    if not shown.story.has_content:
        st.info("This trace has lengths but no content, so there is no hit rate to draw.")
    st.plotly_chart(figure(shown, step), width="stretch", key="hit_rate_chart", alt=alt)
    with st.expander("As a table"):
        st.dataframe(columns(shown, 100), hide_index=True, alt="Hit rate over time as a table")
