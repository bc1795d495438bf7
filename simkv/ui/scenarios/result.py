"""What came out of a scenario: the table of its variants, hit rate over time, replicas, expectations with their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from simkv.comparison import words
from simkv.comparison.report import COLOURS
from simkv.scenarios import Outcome, Scenario, Verdict
from simkv.scenarios.curves import by_replica, hit_rate_over_time, last_admission, ttft_over_time
from simkv.scenarios.figures import FIGURES
from simkv.scenarios.judge import FAILED, PASSED
from simkv.ui import text

MORE = ("#b0851f", "#4d8f8b", "#a04d72", "#6b7280")
_ICON = {PASSED: ":green[:material/check_circle:]", FAILED: ":red[:material/cancel:]"}
_UNKNOWN = ":gray[:material/help:]"


def colours(many: int) -> list[str]:
    """A colour for each variant."""
    return [*COLOURS, *MORE][:many]


def expectations(verdicts: Sequence[Verdict]) -> None:
    """Every expectation, what came out, and whether it holds."""
    held = sum(v.outcome == PASSED for v in verdicts)
    st.markdown(f"**{held} of {text.counted(len(verdicts), 'expectation')} hold**")
    with st.container(key="verdicts", gap="small"):
        for v in verdicts:
            said = text.plain(v.expected.says, 400)
            st.markdown(f"{_ICON.get(v.outcome, _UNKNOWN)} {said}  \n:small[:gray[{text.plain(v.found, 400)}]]")


def table(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """The variants' figures as an HTML table; nothing in it comes from a trace, and all of it is escaped."""
    head = "".join(
        f'<th scope=col><i class=dot style="background:{c}"></i>{escape(o.variant.name)}</th>'
        for c, o in zip(colours(len(outcomes)), outcomes, strict=True)
    )
    body = []
    for key in scenario.figures:
        metric = FIGURES[key]
        values = [o.figure(key) for o in outcomes]
        if all(v is None for v in values):
            continue
        cells = "".join(f"<td>{escape(words.value(metric, v, '–'))}</td>" for v in values)
        body.append(f'<tr><th scope=row title="{escape(metric.about, quote=True)}">{escape(metric.title)}</th>{cells}</tr>')
    return f"<table class=figures><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def replicas(outcomes: Sequence[Outcome]) -> str:
    """Load and hits of every replica of the fleets, as an HTML table; empty if none is a fleet."""
    rows = [(o.variant.name, by_replica(o)) for o in outcomes]
    most = max((len(r) for _, r in rows), default=0)
    if not most:
        return ""
    head = "".join(f"<th scope=col>replica {i}</th>" for i in range(most))
    body = []
    for name, found in rows:
        cells = [
            f'<td><span class=load><i style="width:{100 * share:.0f}%"></i></span>{escape(text.percent(share, 0))}'
            f"<small>hits {escape(text.percent(rate, none='–'))}</small></td>"
            for _, share, rate, _ in found
        ]
        body.append(f"<tr><th scope=row>{escape(name)}</th>{''.join(cells)}{'<td></td>' * (most - len(found))}</tr>")
    return f"<table class='figures replicas'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def over_time(outcomes: Sequence[Outcome], with_hits: bool) -> None:
    """Draw hit rate and time to first token of every variant over simulated time. Plotly is loaded here.

    Args:
        with_hits: whether hits are part of the story; else only the time to first token is drawn.
    """
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    seconds = outcomes[0].run.workload.time_unit == "seconds"
    rows = [hit_rate_over_time] * with_hits + [ttft_over_time] * seconds
    if not rows:
        return
    end = max(last_admission(o) for o in outcomes)
    f: Figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.08)
    for row, curve in enumerate(rows, start=1):
        for colour, o in zip(colours(len(outcomes)), outcomes, strict=True):
            x, y = curve(o, end)
            shown = [None if v != v else v for v in y.tolist()]
            line = {"color": colour, "width": 2}
            f.add_trace(
                Scatter(
                    x=x / 60 if seconds else x,
                    y=shown,
                    name=o.variant.name,
                    mode="lines",
                    line=line,
                    connectgaps=True,
                    legendgroup=o.variant.name,
                    showlegend=row == 1,
                ),
                row=row,
                col=1,
            )
        if curve is hit_rate_over_time:
            f.update_yaxes(tickformat=".0%", range=[0, 1.02], title_text="hit rate", row=row, col=1)
        else:
            f.update_yaxes(type="log", dtick="D2", ticksuffix=" s", title_text="TTFT p95", row=row, col=1)
    f.update_xaxes(title_text="simulated time (minutes)" if seconds else "step", row=len(rows), col=1)
    height = 110 + 190 * len(rows)
    f.update_layout(
        height=height, margin={"l": 10, "r": 10, "t": 10, "b": 10}, hovermode="x unified", legend={"orientation": "h", "y": 1.13}
    )
    st.plotly_chart(f, width="stretch", key="scenario_over_time", alt="Hit rate and time to first token of every variant over time")
    st.caption(
        "Each point is a fortieth of the time: cached ÷ prompt tokens of the requests admitted in it, 95th percentile of those that"
        " arrived in it. Seconds are a model, decisions are exact."
    )
