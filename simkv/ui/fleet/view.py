"""The result of a fleet: headline, cards, replicas over time, the ladder, tabs; one click leads to a replica's block map."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from simkv import __version__
from simkv.plain import plain
from simkv.ui import cards as card_row
from simkv.ui import navigation, text, view
from simkv.ui.fleet import cards, charts, ladder_bars, maps, tables
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.fleet.tables import KEY
from simkv.ui.fleet.verdict import Story, verdict

FLEET = "fleet"
TAB_KEY = "fleet_tab"
TABS = ("Replicas", "Prefix groups", "Decisions against locality", "Belief and truth", "Over time", "Operations")
IN_A_ROW = 16
"""Replicas up to which the switch is a row of buttons."""


def draw(shown: FleetShown) -> None:
    """Draw the fleet, or the replica the switch stands at."""
    st.html(f"<style>{_css()}</style>")
    st.session_state.pop(tables.OPENED, None)
    headline = st.container()
    chosen = _switch(shown)
    if chosen is None:
        headline.subheader(text.plain(verdict(story(shown)), 700), anchor=False)
        _body(shown)
        return
    with st.spinner(f"Drawing the block map of replica {chosen}"):
        one = shown.replica(chosen)
    if one.run.log is None or len(one.run.steps):
        view.draw(one)
    else:
        st.info(f"Replica {chosen} got no request.")


@cache
def _css() -> str:
    return Path(__file__).with_name("fleet.css").read_text(encoding="utf-8")


def story(shown: FleetShown) -> Story:
    """The figures behind the headline."""
    run, (top, above) = shown.run, shown.busiest
    summary = shown.summary
    return Story(
        replicas=run.fleet.replicas,
        router=run.fleet.router,
        ladder=shown.ladder,
        busiest=top,
        above=above,
        sent_again=int((run.attempts > 0).sum()),
        given_up=int(((run.attempts > run.fleet.retries) & (run.placed < 0)).sum()),
        status=run.status,
        finished=int(summary["finished"]),
        requests=int(summary["requests"]),
        end_s=float(run.end_time_s),
        caching=any(run.replica(i).resolved.enable_prefix_caching for i in range(shown.replicas)),
    )


def _switch(shown: FleetShown) -> int | None:
    """Which replica to show; ``None``: all of them."""
    options = [FLEET, *(str(i) for i in range(shown.replicas))]
    if st.session_state.get(KEY, FLEET) not in options:
        st.session_state[KEY] = FLEET
    common: dict[str, Any] = {"key": KEY, "bind": "query-params", "label_visibility": "collapsed"}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.text("Replica", width="content")
        if len(options) <= IN_A_ROW + 1:
            chosen = st.segmented_control("Replica", options, default=FLEET, required=True, **common)
        else:
            chosen = st.selectbox("Replica", options, 0, width=160, **common)
    return None if chosen == FLEET else int(str(chosen))


@st.fragment
def _body(shown: FleetShown) -> None:
    if st.session_state.pop(tables.OPENED, False):
        st.rerun()
    card_row.draw(cards.cards(shown))
    left, right = st.columns([3, 1], gap="medium")
    with left:
        maps.over_time(shown)
    with right:
        st.markdown("**From what could be reused to what was**")
        st.html(ladder_bars.html(shown.ladder))
    _tabs(shown)
    for note in shown.run.notes:
        st.caption(text.plain(note, 500))
    _exports(shown)


def _tabs(shown: FleetShown) -> None:
    opened = dict(zip(TABS, st.tabs(TABS, key=TAB_KEY, on_change="rerun", bind="query-params"), strict=True))
    for name, tab in opened.items():
        if not tab.open:
            continue
        with tab:
            if name == "Replicas":
                tables.replicas(shown)
            elif name == "Prefix groups":
                maps.groups(shown)
            elif name == "Decisions against locality":
                tables.decisions(shown)
            elif name == "Belief and truth":
                charts.drift(shown)
            elif name == "Over time":
                charts.over_time(shown)
            else:
                tables.operations(shown)


def run_json(shown: FleetShown) -> bytes:
    """Settings, version and summary of the fleet, as JSON."""
    run = shown.run
    everything = {
        "simkv": __version__,
        "settings": run.settings.to_mapping(),
        "fleet": run.fleet.to_mapping(),
        "verdict": verdict(story(shown)),
        "ladder": shown.ladder.summary(),
        "summary": shown.summary,
    }
    return json.dumps(plain(everything), indent=2, allow_nan=False).encode()


def replicas_csv(shown: FleetShown) -> bytes:
    """One line a replica; empty fields where there is no data."""
    columns = tables.replica_columns(shown)
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([["" if v is None else v for v in row] for row in zip(*columns.values(), strict=True)])
    return out.getvalue().encode()


def _exports(shown: FleetShown) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "run.json", lambda: run_json(shown), "run.json", "application/json", on_click="ignore", help="Settings, version and summary."
        )
        st.download_button(
            "replicas.csv", lambda: replicas_csv(shown), "replicas.csv", "text/csv", on_click="ignore", help="One line a replica."
        )
        navigation.link_to_compare()
