"""All scenarios as cards, by the headings they have in their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import streamlit as st

from simkv.scenarios import Scenario
from simkv.ui import text
from simkv.ui.scenarios.jobs import jobs

COLUMNS = 3


def draw(scenarios: Sequence[Scenario], open_one: Callable[[str], None]) -> None:
    """Draw the cards.

    Args:
        open_one: called with a scenario's name when its card is opened.
    """
    st.subheader("What goes wrong in production, to be replayed", anchor=False)
    st.caption(
        "A story, its traffic and its settings. One click replays it beside its cure and holds what comes out against what ought to."
    )
    for group, members in groupby(scenarios, key=lambda s: s.group):
        st.markdown(f"**{text.plain(group)}**")
        found = list(members)
        for low in range(0, len(found), COLUMNS):
            for column, scenario in zip(st.columns(COLUMNS, gap="small"), found[low : low + COLUMNS], strict=False):
                _card(column, scenario, open_one)


def _card(column: st.delta_generator.DeltaGenerator, scenario: Scenario, open_one: Callable[[str], None]) -> None:
    with column.container(border=True, height="stretch", key=f"scenario.{scenario.name}"):
        st.markdown(f"**{text.plain(scenario.title, 80)}**")
        st.markdown(text.plain(scenario.shows, 300))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Open", key=f"open.{scenario.name}", on_click=open_one, args=(scenario.name,))
            st.caption(f"{text.counted(len(scenario.variants), 'variant')}{_state(scenario)}")


def _state(scenario: Scenario) -> str:
    job = jobs().get(scenario)
    if job is None or not job.done.is_set() or not job.verdicts:
        return ""
    held = sum(v.outcome == "holds" for v in job.verdicts)
    return f", replayed: {held} of {len(job.verdicts)} expectations hold"
