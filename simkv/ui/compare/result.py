"""A finished comparison: why the sides differ, their maps, the figures, the curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from simkv.comparison import Comparison, Explanation, words
from simkv.comparison.causes import (
    CACHING_OFF,
    CLEARED,
    EDGE,
    EVICTED,
    LATER,
    NEVER,
    NOT_EXAMINED,
    NOT_INSERTED,
    NOT_USABLE,
    UNKNOWN,
)  # fmt: skip
from simkv.comparison.export import as_csv, as_mapping
from simkv.comparison.report import html_report
from simkv.plain import to_json
from simkv.ui import engine_form, navigation, text
from simkv.ui.compare import charts, figures, maps
from simkv.ui.compare.sides import COLOURS, Place
from simkv.ui.shown import Shown

TABS = ("Figures", "Hit rate over time", "Latency distributions", "Where hits differ", "Settings")
_CARD = ("hit_rate", "ttft_p95_s", "output_tokens_per_s")
_CAUSES = {
    EDGE: "behind the last whole block",
    EVICTED: "evicted before it came back",
    CLEARED: "cleared",
    NOT_INSERTED: "computed or under way, not in the cache yet",
    LATER: "brought by a request that is admitted later",
    CACHING_OFF: "no prefix cache",
    NOT_USABLE: "cached, but no resume point there",
    NEVER: "request never admitted",
    NOT_EXAMINED: "not examined one by one",
    UNKNOWN: "the logs do not tell",
}


def sentences(comparison: Comparison) -> None:
    """The answer, on top of the page: why each side differs from A, the first sentence standing out."""
    with st.container(key="answers"):
        for e in comparison.explanations:
            first, dot, rest = e.sentence.removeprefix(f"{e.names[1]} ").partition(". ")
            said = f"**{text.plain(first + dot.strip(), 600)}** {text.plain(rest, 600)}"
            where = f"  \n:small[:gray[{text.plain(e.parting.sentence, 400)}]]" if e.parting is not None else ""
            st.markdown(f":{COLOURS[e.names[1]]}-badge[**{e.names[1]}**] {said}{where}")


def cards(comparison: Comparison, places: Sequence[Place]) -> None:
    """The most important figures on every side's card."""
    rows = {row.metric.key: row for row in comparison.rows}
    for i, (side, place) in enumerate(zip(comparison.sides, places, strict=False)):
        r = side.run.resolved
        engine = engine_form.TITLES.get(r.engine, r.engine)
        told = [f"{rows[k].metric.title} **{words.value(rows[k].metric, rows[k].values[i])}**" for k in _CARD if k in rows]
        with place.figures:
            st.caption(f"{engine} {r.version}, {words.pool(side.run)}")
            st.markdown("  \n".join(told))
        with place.row:
            navigation.link_to_explore(side.run.settings)


def draw(comparison: Comparison, shown: Sequence[Shown], group: str, source: str) -> None:
    """Everything below the cards."""
    maps.draw(comparison, shown, group)
    _tabs(comparison)
    for note in comparison.notes:
        st.caption(text.plain(note, 500))
    _exports(comparison, source)


@st.fragment
def _tabs(comparison: Comparison) -> None:
    opened = dict(zip(TABS, st.tabs(TABS, key="compare_tab", on_change="rerun"), strict=True))
    for name, tab in opened.items():
        if not tab.open:
            continue
        with tab:
            if name == "Figures":
                figures.draw(comparison.rows, [s.name for s in comparison.sides])
            elif name == "Hit rate over time":
                if comparison.sides[0].run.workload.prompts_have_content:
                    charts.hit_rate(comparison.sides)
                else:
                    st.info("This source has lengths but no content, so there is no hit rate to draw.")
            elif name == "Latency distributions":
                if comparison.sides[0].run.workload.time_unit == "seconds":
                    charts.latencies(comparison.sides)
                else:
                    st.info("This source is timed in steps, so there are no latencies in seconds.")
            elif name == "Where hits differ":
                _causes(comparison)
            else:
                st.dataframe(settings(comparison), hide_index=True, alt="Settings of every side")


def _causes(comparison: Comparison) -> None:
    rows = causes(comparison)
    if not rows["tokens"]:
        st.info("Every request finds the same on all sides.")
        return
    st.caption(
        "Prompt tokens that one side found cached at a request's first admission and the other did not, by what became of them on"
        " the side that missed them. The rows of a pair add up to the difference of its cached prompt tokens."
    )
    number = st.column_config.NumberColumn(format="localized")
    shape = {"tokens": number, "requests": number}
    st.dataframe(rows, hide_index=True, column_config=shape, alt="Cached prompt tokens that differ, by cause")
    for e in comparison.explanations:
        if e.largest:
            st.markdown(f"**{e.names[1]} against {e.names[0]}**, the requests that differ most")
            columns = largest(e)
            shape = {name: number for name in columns if name.startswith(("prompt", "cached"))}
            st.dataframe(columns, hide_index=True, height=245, column_config=shape, alt="Requests whose cached tokens differ most")


def causes(comparison: Comparison) -> dict[str, list[Any]]:
    """Every pair's difference in cached tokens by cause, as columns."""
    out: dict[str, list[Any]] = {"pair": [], "missed by": [], "why": [], "tokens": [], "requests": []}
    for e in comparison.explanations:
        for s in e.shifts:
            cells = (f"{e.names[1]} against {e.names[0]}", e.names[s.side], _CAUSES[s.cause], s.tokens, s.requests)
            for column, cell in zip(out.values(), cells, strict=True):
                column.append(cell)
    return out


def largest(e: Explanation) -> dict[str, list[Any]]:
    """The requests of a pair that differ most, as columns."""
    return {
        "request": [d.request for d in e.largest],
        "prompt tokens": [d.prompt_tokens for d in e.largest],
        f"cached in {e.names[0]}": [d.cached[0] for d in e.largest],
        f"cached in {e.names[1]}": [d.cached[1] for d in e.largest],
        "because": [d.why for d in e.largest],
    }


def settings(comparison: Comparison) -> dict[str, list[str]]:
    """The settings that are not the same everywhere, and what followed from them, as columns."""
    mappings = [s.run.settings.to_mapping() for s in comparison.sides]
    names = [n for n in dict.fromkeys(n for m in mappings for n in m) if len({str(m.get(n, "–")) for m in mappings}) > 1]
    out = {"setting": names, **{s.name: [str(m.get(n, "–")) for n in names] for s, m in zip(comparison.sides, mappings, strict=True)}}
    for name in ("num_gpu_blocks", "block_size", "max_running"):
        out["setting"].append(f"{name} (in force)")
        for s in comparison.sides:
            out[s.name].append(f"{getattr(s.run.resolved, name):,}")
    return out


def _exports(comparison: Comparison, source: str) -> None:
    with st.container(horizontal=True):
        for name, kind, make in (
            ("comparison.html", "text/html", lambda: html_report(comparison, source).encode()),
            ("comparison.csv", "text/csv", lambda: as_csv(comparison).encode()),
            ("comparison.json", "application/json", lambda: to_json(as_mapping(comparison, source)).encode()),
        ):
            st.download_button(name, make, name, kind, on_click="ignore")
