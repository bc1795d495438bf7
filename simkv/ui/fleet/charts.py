"""A fleet over time, and the router's belief against the caches. Plotly is loaded only when one of these tabs is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

from simkv.ui import text
from simkv.ui.fleet.shown import FleetShown

F8 = npt.NDArray[np.float64]
MANY = 4
"""Replicas up to which each has a line of its own; more are a band."""
BAND = "#8ec4e8"
COLOURS = ("#14748a", "#f0a202", "#7a5195", "#d1495b")
POINTS = 60


def drift_columns(shown: FleetShown, points: int = POINTS) -> dict[str, F8]:
    """Mean share of the prompt that the router believed cached and that was, by moment of decision, in ``points`` bins."""
    found, d = shown.locality, shown.run.decisions
    edges = np.linspace(0.0, float(shown.series.edges[-1]), points + 1)
    known = np.isfinite(found.believed) & np.isfinite(found.held)
    at = np.clip(np.searchsorted(edges, d["time"][known], side="right") - 1, 0, points - 1)
    count = np.bincount(at, minlength=points)
    out = {"time": (edges[:-1] + edges[1:]) / 2}
    for name, values in (("believed", found.believed), ("held", found.held)):
        mean = np.full(points, np.nan)
        np.divide(np.bincount(at, values[known], points), count, out=mean, where=count > 0)
        out[name] = mean
    return out


def drift(shown: FleetShown) -> None:
    """Draw what the router believed against what was really cached."""
    found = shown.locality
    known = np.isfinite(found.believed) & np.isfinite(found.held)
    if not known.any():
        st.info("This router matches no prompts (or the caches were not observed), so it believes nothing about them.")
        return
    believed, held = float(found.believed[known].mean()), float(found.held[known].mean())
    over = found.believed[known] - found.held[known]
    st.caption(
        f"On the replica it chose the router took {text.percent(believed)} of the prompt for cached in the mean; {text.percent(held)} was."
        f" In {text.percent(float((over > 0.05).mean()))} of {text.counted(int(known.sum()), 'decision')} it was too hopeful by more than"
        " 5 points (its table remembers what the engine has evicted, or what another unit of matching cannot hit), in"
        f" {text.percent(float((over < -0.05).mean()))} too modest."
    )
    from plotly.graph_objects import Figure, Scatter

    data = drift_columns(shown)
    seconds = shown.time_unit == "seconds"
    x = data["time"] / 60 if seconds else data["time"]
    f: Figure = Figure()
    for name, column, colour, dash in (
        ("believed by the router", "believed", "#f0a202", "dash"),
        ("really cached", "held", "#2f6db3", "solid"),
    ):
        f.add_trace(Scatter(x=x, y=_gaps(data[column]), name=name, mode="lines", line={"color": colour, "dash": dash, "width": 2}))
    f.update_yaxes(tickformat=".0%", range=[0, 1.02], title_text="share of the prompt")
    _look(f, shown, 320, None)
    st.plotly_chart(
        f, width="stretch", key="drift_chart", alt=f"Believed {text.percent(believed)}, cached {text.percent(held)} in the mean"
    )


def over_time(shown: FleetShown) -> None:
    """Draw hit rate and load of the replicas over time, with the operations."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    series, seconds = shown.series, shown.time_unit == "seconds"
    x = series.edges[1:] / 60 if seconds else series.edges[1:]
    f: Figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    few = shown.replicas <= MANY
    for row, (name, total) in enumerate((("hit_rate", series.total["hit_rate"]), ("prefill_tokens_per_s", None)), start=1):
        values = series.of[name]
        curves: list[tuple[str, F8, str, str | None]]
        if few:
            curves = [(f"replica {i}", values[i], COLOURS[i], None) for i in range(shown.replicas)]
        else:
            curves = [
                ("highest replica", _over(values, np.nanmax), BAND, None),
                ("lowest replica", _over(values, np.nanmin), BAND, "tonexty"),
            ]
        for title, y, colour, fill in curves:
            line = {"color": colour, "width": 1}
            f.add_trace(Scatter(x=x, y=_gaps(y), name=title, mode="lines", line=line, fill=fill, showlegend=row == 1), row=row, col=1)
        middle = total if total is not None else _over(values, np.nanmean)
        line = {"color": "#2f6db3" if few else "#f0a202", "width": 2.5}
        f.add_trace(Scatter(x=x, y=_gaps(middle), name="all", mode="lines", line=line, showlegend=row == 1), row=row, col=1)
    for s in shown.stretches:
        if s.state in ("down", "draining"):
            colour = "#d1495b" if s.state == "down" else "#f0a202"
            f.add_vrect(s.start / (60 if seconds else 1), s.end / (60 if seconds else 1), fillcolor=colour, opacity=0.12, line_width=0)
    f.update_yaxes(tickformat=".0%", range=[0, 1.02], title_text="hit rate", row=1, col=1)
    f.update_yaxes(rangemode="tozero", title_text="prompt tokens computed / s" if seconds else "… / step", row=2, col=1)
    _look(f, shown, 440, 2)
    note = " Shaded: a replica drains (yellow) or is down (red)." if any(s.state in ("down", "draining") for s in shown.stretches) else ""
    st.caption(f"In bins of {text.seconds(series.bin_s) if seconds else f'{series.bin_s:,.0f} steps'}.{note}")
    st.plotly_chart(f, width="stretch", key="fleet_chart", alt="Hit rate and load of the replicas over time")


def _over(values: F8, how: Any) -> F8:
    out = np.full(values.shape[1], np.nan)
    some = np.isfinite(values).any(axis=0)
    out[some] = how(values[:, some], axis=0)
    return out


def _gaps(values: F8) -> list[float | None]:
    return [v if v == v else None for v in values.tolist()]


def _look(figure: Any, shown: FleetShown, height: int, row: int | None) -> None:
    title = "simulated time (minutes)" if shown.time_unit == "seconds" else "step"
    figure.update_xaxes(title_text=title, row=row, col=None if row is None else 1)
    figure.update_layout(
        height=height, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": 1.14}, hovermode="x unified"
    )
