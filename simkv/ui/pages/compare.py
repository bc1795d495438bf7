"""Compare: the same traffic under up to four settings or engines, and why they differ. Opens already computed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from simkv.comparison import Choice, Comparison, Side
from simkv.comparison.choices import NAMES, others
from simkv.comparison.fleets import FleetComparison
from simkv.engine.engines import merge
from simkv.errors import SimkvError
from simkv.ui import replaying, resolved, sidebar, sources, text
from simkv.ui.compare import fleet_result, fleet_sides, jobs, result, sides
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.run_store import Job
from simkv.ui.shown import Shown
from simkv.ui.viewer import viewer

PATIENCE_S = 2.0
_WANTED, _LAST = "_compare_wanted", "_compare_last"


def page() -> None:
    """Draw the page."""
    st.html(f"<style>{_css()}</style>")
    top = st.container()
    try:
        with st.sidebar:
            chosen = sidebar.draw()
            status = st.container()
        if chosen.config is None:
            st.info("Choose a trace file in the sidebar, or go back to the bundled traces.", icon=":material/upload_file:")
            return
        workload = sources.asked(chosen.config, chosen.data)
        base = merge(chosen.config.settings, workload)
        said, places = sides.draw(base, chosen.config.fleet)
        plain, fleets = fleet_sides.split(chosen.config.fleet, said)
        labelled = [replace(choice, label=told or choice.label) for choice, told in zip(others(base, plain), said, strict=True)]
        asked = jobs.asked(chosen, [Choice(NAMES[0], "A", base), *labelled], fleets)
    except SimkvError as problem:
        _problem(problem, top)
        return
    resolved.draw_dropped(workload.report)
    with status:
        wanted = _wanted(asked)
    if not wanted:
        _stale(
            top,
            places,
            "The settings have changed and these replays are large: press Compare in the sidebar. Below is the last comparison.",
        )
        return
    found = jobs.wait(asked, viewer(), PATIENCE_S)
    if not jobs.finished(asked, found):
        with top:
            jobs.draw(asked, viewer())
        _stale(None, (), "")
        return
    _show(asked, found, top, places, workload.name)


@cache
def _css() -> str:
    here = Path(__file__).resolve().parent.parent
    return "".join((here / name).read_text(encoding="utf-8") for name in ("style.css", "compare/compare.css", "fleet/fleet.css"))


def _wanted(asked: jobs.Asked) -> bool:
    """Whether to replay now: small, the first, or asked for."""
    seconds = asked.seconds
    if seconds < len(asked.configs) * replaying.SMALL_S:
        st.caption("Small enough to compare again at every change.")
        return True
    wanted = st.session_state.get(_WANTED) == asked.key or _LAST not in st.session_state
    st.button("Compare", type="primary", width="stretch", on_click=_want, args=(asked.key,), disabled=wanted)
    st.caption(f"Large: about {text.seconds(seconds)} for what is not replayed yet.")
    return wanted


def _want(key: tuple[str, ...]) -> None:
    st.session_state[_WANTED] = key


def _show(asked: jobs.Asked, found: Sequence[Job], top: Any, places: Sequence[sides.Place], source: str) -> None:
    """The comparison of the sides that there are; an error stands above the last good one."""
    failed = next(((c, j) for c, j in zip(asked.choices, found, strict=False) if j.error is not None), None)
    if failed is not None:
        choice, job = failed
        jobs.again(asked)
        _problem(SimkvError(f"{choice.name}: {job.error}"), top)
        return
    shown = [job.result for job in found if job.result is not None]
    key = (asked.key[: len(shown)], tuple(s.run.status for s in shown), tuple(c.label for c in asked.choices))
    last = st.session_state.get(_LAST)
    if last is None or last[0] != key:
        with top, st.spinner("Finding where they part"):
            last = st.session_state[_LAST] = (key, _compared(asked, shown), shown)
    if len(shown) < len(asked.configs) or any(s.run.status == "partial" for s in shown):
        with top:
            st.warning("Stopped: what is not finished is missing or partial.", icon=":material/pause_circle:")
            st.button("Go on", on_click=jobs.again, args=(asked,))
    _draw(last[1], last[2], top, places, source)


def _compared(asked: jobs.Asked, shown: Sequence[Shown | FleetShown]) -> Comparison | FleetComparison:
    """The sides there are, compared; fleets on both axes."""
    fleets = [s for s in shown if isinstance(s, FleetShown)]
    if fleets:
        return fleet_result.comparison([(c.name, c.label) for c in asked.choices], fleets)
    singles = [s for s in shown if isinstance(s, Shown)]
    made = Comparison(tuple(Side(c.name, c.label, s.run, c.notes) for c, s in zip(asked.choices, singles, strict=False)))
    assert made.explanations is not None
    return made


def _draw(comparison: Comparison | FleetComparison, shown: Sequence[Any], top: Any, places: Sequence[sides.Place], source: str) -> None:
    if isinstance(comparison, FleetComparison):
        if top is not None:
            with top:
                fleet_result.sentences(comparison)
        fleet_result.cards(comparison, places)
        fleet_result.draw(comparison, shown)
        return
    if top is not None:
        with top:
            result.sentences(comparison)
    result.cards(comparison, places)
    group = hashlib.sha256(" ".join(s.digest for s in shown).encode()).hexdigest()[:12]
    result.draw(comparison, shown, group, source)


def _problem(problem: SimkvError, top: Any) -> None:
    with top:
        st.error(text.plain(str(problem), 1000), icon=":material/error:")
    _stale(None, (), "Below is the last good comparison, with other settings.")


def _stale(top: Any, places: Sequence[sides.Place], note: str) -> None:
    """The last comparison, greyed; nothing if there is none yet."""
    last = st.session_state.get(_LAST)
    if last is None:
        return
    if note:
        st.caption(note)
    with st.container(key="stale"):
        _draw(last[1], last[2], st.container(), places, last[1].sides[0].run.workload.name)
