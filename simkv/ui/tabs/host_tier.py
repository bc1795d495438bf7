"""The host tier: how full, what goes in and out, how much it finds, whether it pays. Plotly is loaded only when the tab is opened."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from simkv.diagnosis.break_even import BreakEven, break_even
from simkv.diagnosis.host_report import NO_METRIC, HostReport
from simkv.errors import SimkvError
from simkv.hardware.gpus import find_gpu
from simkv.hardware.transfer import host_link
from simkv.metrics.host import host_series
from simkv.settings import EngineSettings
from simkv.ui import text
from simkv.ui.shown import Shown

POINTS = 300
DEVICE, HOST, LOAD, STORE, GONE = "#2f6db3", "#c9711d", "#14748a", "#8a63b8", "#d1495b"
HOST_AREA = "rgba(201, 113, 29, 0.18)"
"""The device is blue and the host orange in every chart of this tab."""


def draw(shown: Shown, step: int) -> None:
    """Draw the tab."""
    report = shown.host
    if report is None:
        _without(shown)
        return
    said = [text.plain(sentence, 600) for sentence in report.warnings]
    if said:
        st.warning(said[0] if len(said) == 1 else "\n".join(f"- {sentence}" for sentence in said), icon=":material/warning:")
    _figures(report, "whole run" if shown.run.status == "complete" else "so far")
    st.caption(
        f"The host is asked only for what the GPU did not have, so the two rates have different denominators and are never added. "
        f"Occupancy is counted from the tier's own events: {NO_METRIC}. "
        f"Rates are over the {shown.timeline.window_name}. Upright line: the shown step."
    )
    if report.history is not None and len(shown.run.steps):
        alt = f"Host occupancy, hit rates of GPU and host, and chunks in and out over time; mean occupancy {report.rows()[2][1]}"
        st.plotly_chart(figure(shown, report, step), width="stretch", key="host_chart", alt=alt)
        with st.expander("As a table"):
            st.dataframe(columns(shown, report, 100), hide_index=True, alt="The host tier over time as a table")
    else:
        st.info("The course over time needs the event log, which this run was too big to keep. Limit the requests.")
    _break_even(report.break_even)


def columns(shown: Shown, report: HostReport, points: int = POINTS) -> dict[str, list[Any]]:
    """The curves as columns; ``None`` where there is no data."""
    assert report.history is not None
    time = shown.curves(points)["time"]
    data = host_series(report.history, shown.timeline.rolling, report.tier.chunks, report.tier.block_size, time)
    per = "s" if shown.time_unit == "seconds" else "step"
    window = shown.timeline.window_name
    named = {
        "host occupancy": "occupancy",
        f"GPU hit rate, {window}": "device_hit_rate",
        f"host hit rate of the rest, {window}": "host_hit_rate",
        f"{report.unit} stored / {per}": "stored_per_s",
        f"{report.unit} evicted / {per}": "removed_per_s",
        f"blocks loaded / {per}": "loaded_per_s",
    }
    return {"time": time.tolist(), **{name: [v if math.isfinite(v) else None for v in data[key].tolist()] for name, key in named.items()}}


def figure(shown: Shown, report: HostReport, step: int) -> Any:
    """The curves as a Plotly figure with the shown step marked."""
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    data = columns(shown, report)
    seconds = shown.time_unit == "seconds"
    x = [v / 60 for v in data["time"]] if seconds else data["time"]
    f: Figure = make_subplots(rows=3, cols=1, shared_xaxes=True, row_heights=[0.34, 0.33, 0.33], vertical_spacing=0.06)
    looks = ((HOST, "solid", 1), (DEVICE, "solid", 2), (HOST, "dash", 2), (STORE, "solid", 3), (GONE, "dot", 3), (LOAD, "dash", 3))
    for name, (colour, dash, row) in zip(list(data)[1:], looks, strict=True):
        line = {"color": colour, "dash": dash, "width": 2}
        area = {"fill": "tozeroy", "fillcolor": HOST_AREA} if row == 1 else {}
        f.add_trace(Scatter(x=x, y=data[name], name=name, mode="lines", line=line, **area), row=row, col=1)
    f.add_vline(shown.timeline.time[step] / (60 if seconds else 1), line={"width": 1, "color": "#888888"})
    f.update_yaxes(title_text="occupancy", tickformat=".0%", range=[0, 1.02], row=1, col=1)
    f.update_yaxes(title_text="hit rate", tickformat=".0%", range=[0, 1.02], row=2, col=1)
    f.update_yaxes(title_text=f"per {'s' if seconds else 'step'}", rangemode="tozero", row=3, col=1)
    f.update_xaxes(title_text="simulated time (minutes)" if seconds else "step", row=3, col=1)
    f.update_layout(height=440, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": 1.12}, hovermode="x unified")
    return f


def _figures(report: HostReport, part: str) -> None:
    by_name = {name: (value, what) for name, value, what in report.rows()}
    cards = [
        (
            f"GPU hit rate, {part}",
            text.percent(report.rates.device),
            f"{report.use.hits:,} of {report.use.queries:,} prompt tokens looked up",
        ),
        ("Host hit rate, of the rest", *by_name["host hit rate"]),
        ("Found anywhere", *by_name["found anywhere"]),
        ("Host occupancy, mean", *by_name["host occupancy"]),
        ("Loaded from the host", text.memory(report.load_bytes).split(" (")[0], f"{by_name['loaded'][0]} {by_name['loaded'][1]}"),
        ("Offers refused", *by_name["refused offers"]),
    ]
    for column, (label, value, what) in zip(st.columns(len(cards)), cards, strict=True):
        column.metric(label, value, help=what[0].upper() + what[1:] + ".", border=True, height="stretch")


def _without(shown: Shown) -> None:
    if not isinstance(shown.run.settings, EngineSettings):
        st.info("Only vLLM's host tier is modelled.")
        return
    st.info("This run has no host tier. kv_offloading_size in the sidebar (under Host tier) adds one; below is what it could save.")
    try:
        link = host_link(find_gpu(shown.run.settings.gpu))
        _break_even(break_even(shown.run.settings, link, longest=max(shown.run.resolved.max_model_len, shown.run.resolved.block_size)))
    except SimkvError as problem:
        st.info(text.plain(str(problem), 400))


def _break_even(found: BreakEven) -> None:
    st.markdown("**Load it or compute it again?**")
    st.text(found.sentence)
    st.plotly_chart(break_even_figure(found), width="stretch", key="break_even_chart", alt=found.sentence)
    with st.expander("What this rests on"):
        for sentence in found.assumptions:
            st.text(sentence)


def break_even_figure(found: BreakEven) -> Any:
    """Seconds against prompt tokens, both ways, on logarithmic axes."""
    from plotly.graph_objects import Figure, Scatter

    tokens = [c.context for c in found.costs]
    curves = (
        ("load it from the host", [c.load_s for c in found.costs], HOST, "solid"),
        ("compute it again", [c.recompute_s for c in found.costs], DEVICE, "dash"),
    )
    f: Figure = Figure()
    for name, y, colour, dash in curves:
        f.add_trace(Scatter(x=tokens, y=y, name=name, mode="lines+markers", line={"color": colour, "dash": dash, "width": 2}))
    if found.length is not None and tokens[0] <= found.length <= tokens[-1]:
        f.add_vline(found.length, line={"width": 1, "color": "#888888"})
        # On a logarithmic axis Plotly takes the place of a note as a logarithm, that of a line not.
        place = {"x": math.log10(found.length), "xanchor": "left", "xshift": 4, "y": 1, "yref": "paper"}
        f.add_annotation(text=f"{found.length:,} tokens", showarrow=False, **place)
    ticks = [*(t for t in tokens[::2] if 1.7 * t < tokens[-1]), tokens[-1]]
    f.update_xaxes(type="log", title_text="prompt tokens", tickvals=ticks, ticktext=[f"{t:,}" for t in ticks])
    f.update_yaxes(type="log", title_text="seconds to the first token", dtick=1)
    f.update_layout(height=300, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": 1.15}, hovermode="x unified")
    return f
