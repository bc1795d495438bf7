"""Explore: replay traffic, see every block, learn why the hit rate is what it is. Opens already computed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

from simkv.engine.contract import Resolved
from simkv.engine.engines import merge, resolve_for
from simkv.engine.step_time import StepTime, for_workload
from simkv.errors import SimkvError
from simkv.ui import navigation, progress, replaying, resolved, sidebar, sources, text, view
from simkv.ui.config import Config, cost
from simkv.ui.fleet import view as fleet_view
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.run_store import Job, store
from simkv.ui.shown import Shown
from simkv.ui.viewer import viewer
from simkv.workload.workload import Workload

PATIENCE_S = 2.0
"""How long a script run waits for a result before it shows progress instead."""
_WAY_BACK = '<a class="back" href="?" target="_self">Back to the example the app opens with</a>'
_RUN, _LAST, _JOB = "_run_wanted", "_last_shown", "_job"


def page() -> None:
    """Draw the page."""
    st.html(f"<style>{_css()}</style>")
    try:
        with st.sidebar:
            chosen = sidebar.draw()
            status = st.container()
        if chosen.config is None:
            _nothing_chosen()
            return
        workload = sources.asked(chosen.config, chosen.data)
        found = resolve_for(chosen.config.settings, workload)
        step_time = for_workload(workload, merge(chosen.config.settings, workload))
    except SimkvError as problem:
        _problem(problem)
        return
    resolved.draw_dropped(workload.report)
    job = _job(chosen.config, workload, found, step_time, status)
    if job is None:
        _stale("The settings have changed and this run is large: press Run in the sidebar. Below is the last result, with other settings.")
        return
    if job.done.wait(PATIENCE_S):
        _show(job)
        return
    progress.draw(job.config.digest)
    _stale("")


@cache
def _css() -> str:
    return (Path(__file__).resolve().parent.parent / "style.css").read_text(encoding="utf-8")


def _job(config: Config, workload: Workload, found: Resolved, step_time: StepTime, status: st.delta_generator.DeltaGenerator) -> Job | None:
    """The configuration's job, started if it is small, first, or asked for; else ``None``."""
    digest, me = config.digest, viewer()
    before: str | None = st.session_state.get(_JOB)
    if before not in (None, digest):
        store().leave(str(before), me)
    known = store().get(digest)
    seconds = cost(workload, config.settings, config.fleet)
    small = seconds < replaying.SMALL_S
    with status:
        if small:
            st.caption(f"{text.counted(len(workload), 'request')}, {_pool(config, found)}: small enough to recompute at every change.")
        else:
            partial = known is not None and known.result is not None and known.result.run.status == "partial"
            label = "Run again to the end" if partial else "Run"
            st.button(
                label, type="primary", width="stretch", on_click=_want, args=(digest, partial), disabled=known is not None and not partial
            )
            tokens = text.short_count(float(workload.num_prompt.sum()))
            st.caption(f"{text.counted(len(workload), 'request')}, {tokens} prompt tokens: large, about {text.seconds(seconds)}.")
        resolved.draw(found, workload, step_time)
        navigation.link_to_compare()
    if known is None and not small and st.session_state.get(_RUN) != digest and _LAST in st.session_state:
        return None
    st.session_state[_JOB] = digest
    return store().start(config, lambda job: replaying.work(job, workload, config), me)


def _pool(config: Config, found: Resolved) -> str:
    many = f"{config.fleet.replicas} × " if config.fleet is not None else ""
    return f"{many}{found.num_gpu_blocks:,} blocks"


def _want(digest: str, again: bool) -> None:
    if again:
        store().forget(digest)
    st.session_state[_RUN] = digest


def _show(job: Job) -> None:
    """A finished job: its result, or its error over the last good result."""
    if job.error is not None:
        store().forget(job.config.digest)
        _problem(job.error)
        return
    assert job.result is not None
    st.session_state[_LAST] = job.result
    _draw(job.result)


def _draw(shown: Shown | FleetShown) -> None:
    if isinstance(shown, FleetShown):
        fleet_view.draw(shown)
    else:
        view.draw(shown)


def _problem(problem: SimkvError) -> None:
    st.error(text.plain(str(problem), 1000), icon=":material/error:")
    st.html(_WAY_BACK)
    _stale("Below is the last good result, with other settings.")


def _stale(note: str) -> None:
    """The last good result, greyed; nothing if there is none yet."""
    last: Shown | FleetShown | None = st.session_state.get(_LAST)
    if last is None:
        return
    if note:
        st.caption(note)
    with st.container(key="stale"):
        _draw(last)


def _nothing_chosen() -> None:
    st.info("Choose a trace file in the sidebar, or go back to the bundled traces.", icon=":material/upload_file:")
    st.button("Use the bundled trace", on_click=_use_bundled)
    _stale("Below is the last result.")


def _use_bundled() -> None:
    st.session_state["source"] = "Trace"
