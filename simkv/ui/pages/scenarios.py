"""Scenarios: a gallery of production failures and decisions; a card opens, replays, and says what came out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

from simkv.errors import SimkvError
from simkv.scenarios import Scenario, find_scenario, scenarios
from simkv.ui import navigation, text
from simkv.ui.scenarios import addresses, gallery, result
from simkv.ui.scenarios.jobs import ScenarioJob, jobs

PARAMETER = "scenario"
PATIENCE_S = 1.0


def page() -> None:
    """Draw the page."""
    st.html(f"<style>{_css()}</style>")
    name = st.query_params.get(PARAMETER)
    try:
        if name is None:
            gallery.draw(scenarios(), _open)
            return
        scenario = find_scenario(name)
    except SimkvError as problem:
        st.error(text.plain(str(problem), 1000), icon=":material/error:")
        st.button("All scenarios", on_click=_close, icon=":material/arrow_back:")
        return
    _scenario(scenario)


@cache
def _css() -> str:
    here = Path(__file__).resolve().parent.parent
    return "".join((here / name).read_text(encoding="utf-8") for name in ("style.css", "compare/compare.css", "scenarios/scenarios.css"))


def _open(name: str) -> None:
    st.query_params[PARAMETER] = name


def _close() -> None:
    st.query_params.pop(PARAMETER, None)


def _scenario(scenario: Scenario) -> None:
    st.button("All scenarios", on_click=_close, icon=":material/arrow_back:", type="tertiary")
    st.subheader(text.plain(scenario.title, 80), anchor=False)
    with st.container(key="story"):
        st.markdown(text.plain(scenario.story, 2000))
    _variants(scenario)
    job = jobs().get(scenario)
    if job is None or job.cancelled.is_set() or job.error is not None:
        st.button("Run", type="primary", on_click=_run, args=(scenario,), icon=":material/play_arrow:")
    if job is None:
        st.caption(f"Replays {text.counted(len(scenario.variants), 'variant')}, a few seconds in all. {text.plain(scenario.shows, 300)}")
        return
    if not job.done.wait(PATIENCE_S):
        _progress(scenario)
        return
    if job.error is not None:
        st.error(text.plain(str(job.error), 1000), icon=":material/error:")
    elif job.cancelled.is_set():
        st.warning("Stopped: variants that were not finished are missing.", icon=":material/pause_circle:")
    if job.outcomes:
        _result(scenario, job)


def _run(scenario: Scenario) -> None:
    jobs().start(scenario)


@st.fragment(run_every=0.4)
def _progress(scenario: Scenario) -> None:
    job = jobs().get(scenario)
    if job is None or job.done.is_set():
        st.rerun()
    st.progress(job.share, job.sentence)
    st.button("Cancel", on_click=job.cancelled.set, disabled=job.cancelled.is_set(), help="Variants that are finished are kept.")


def _variants(scenario: Scenario) -> None:
    """A card for each variant: what is different, and the way to Explore."""
    for column, v in zip(st.columns(len(scenario.variants), gap="small"), scenario.variants, strict=True):
        with column.container(border=True, height="stretch", key=f"variant.{v.name}"):
            st.markdown(f"**{text.plain(v.name)}**")
            st.markdown(text.plain(v.about, 300))
            address = addresses.explore(v)
            if address is not None:
                navigation.link("./", address, "Open in Explore")


def _result(scenario: Scenario, job: ScenarioJob) -> None:
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.html(result.table(scenario, job.outcomes))
        if (replicas := result.replicas(job.outcomes)) != "":
            st.html(replicas)
        _compare(scenario)
        result.over_time(job.outcomes, "hit_rate" in scenario.figures)
    with right:
        result.expectations(job.verdicts)
        st.markdown(f"**{text.plain(scenario.shows, 300)}**")


def _compare(scenario: Scenario) -> None:
    """Two of the variants side by side, block maps and causes included."""
    pairs = {f"{a.name} and {b.name}": (a, b) for a in scenario.variants for b in scenario.variants if a is not b}
    open_to = {name: found for name, (a, b) in pairs.items() if (found := addresses.compare(a, b)) is not None}
    if not open_to:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Two of them in Compare, block by block", list(open_to), key="scenario_pair", width=420)
        navigation.link("compare", open_to[str(chosen)], "Compare these two")
