"""The result: headline, cards, block map with details, tabs. One fragment, so a click does not touch the sidebar."""

from __future__ import annotations

import json

import numpy as np
import streamlit as st

from simkv import __version__
from simkv.plain import plain
from simkv.ui import cards, details, navigation, text
from simkv.ui.block_map.component import block_map, show_on_map
from simkv.ui.cursor import MAP_KEY, TAB_KEY, Cursor, cursor, follow, from_map
from simkv.ui.facts.component import facts
from simkv.ui.shown import Shown
from simkv.ui.tabs import block_tables, blocks, events, free_queue, hit_rate, host_tier, memory, prefix_tree, requests
from simkv.ui.verdict import verdict

TABS = ("Free queue", "Block tables", "Prefix tree", "Events", "Hit rate over time", "KV memory", "Host tier", "Requests", "All blocks")


QUEUE_TITLES = {"contiguous": "Free cells", "sglang": "Taken next: head of the free list"}
"""Heading of the free queue's head where the engine does not evict from it."""


def draw(shown: Shown) -> None:
    """Draw everything about one run."""
    st.subheader(text.plain(verdict(shown.story), 600), anchor=False)
    for note in shown.run.notes:
        st.caption(text.plain(note, 600))
    _body(shown)


@st.fragment
def _body(shown: Shown) -> None:
    here = cursor(shown)
    s = shown.story
    if len(shown.run.steps):
        found = cards.cards(
            shown.timeline,
            shown.curves(40),
            here.step,
            hit_rate=shown.counted_hit_rate,
            ttft_p95_s=s.ttft_p95_s,
            evicted=s.evicted,
            preemptions=s.preemptions,
            complete=shown.run.status == "complete",
            at_lookup=shown.run.resolved.stats_at_lookup,
        )
        cards.draw(found)
    if shown.history is None:
        st.info(text.plain(shown.note, 300), icon=":material/grid_off:")
    else:
        left, right = st.columns([3, 1], gap="medium")
        with left:
            _map(shown, here)
        with right:
            _details(shown, here)
    _tabs(shown, here)
    _exports(shown)


def _map(shown: Shown, here: Cursor) -> None:
    block_map(shown.blob, key=MAP_KEY, on_select=lambda: from_map(shown, "sel"), on_frame=lambda: from_map(shown, "frame"))
    held, label = marks(shown, here)
    with st.container(key="remote"):
        show_on_map(here.wish, shown.digest, step=here.step, block=here.block, marks=held, label=label, key="remote_map")


def marks(shown: Shown, here: Cursor) -> tuple[list[int], str]:
    """The blocks to make stand out, and what they are: all blocks of who holds the selected block, else of the selected request."""
    state = shown.state(here.step)
    if state is None:
        return [], ""
    owners = [int(r) for r in state.owners(here.block)] if here.block else []
    requests_ = owners or ([here.request] if here.request is not None and here.block is None else [])
    held = np.unique(np.concatenate([t for r in requests_ for t in state.tables(r)] or [np.zeros(0, np.int32)]))
    names = [shown.run.workload.id(r) for r in requests_]
    return held[held > 0].tolist(), text.some(names, 2)


def _details(shown: Shown, here: Cursor) -> None:
    state = shown.state(here.step)
    if state is None:
        return
    if here.block is None:
        facts(
            [],
            key="facts",
            title="No block selected",
            note="Click a block on the map: state, hash, parent, owners, place in the free queue.",
        )
    else:
        full = st.session_state.get("digest", False)
        rows = details.block_facts(shown, state, here.block, with_digest=bool(full))
        facts(rows, key="facts", title=f"Block {here.block:,} at step {here.step:,}", on_go=lambda: _go(shown, "facts"))
        if shown.run.resolved.engine == "vllm":
            st.toggle("SHA-256 digest", False, key="digest", help="The engine's own block_hash, computed now from the tokens.")
    victims = details.next_victims(shown, state, 9 if here.block is None else 5)
    facts(
        victims,
        key="victims",
        title=QUEUE_TITLES.get(shown.run.resolved.engine, "Dies next: head of the free queue"),
        note="" if victims else "Empty: every block is held.",
        on_go=lambda: _go(shown, "victims"),
    )


def _go(shown: Shown, key: str) -> None:
    follow(shown, (st.session_state.get(key) or {}).get("go"))


def _tabs(shown: Shown, here: Cursor) -> None:
    state, log = shown.state(here.step), shown.run.log
    opened = dict(zip(TABS, st.tabs(TABS, key=TAB_KEY, on_change="rerun", bind="query-params"), strict=True))
    for name, tab in opened.items():
        if not tab.open:
            continue
        with tab:
            if name == "Hit rate over time":
                hit_rate.draw(shown, here.step)
            elif name == "KV memory":
                memory.draw(shown, here.step)
            elif name == "Requests":
                requests.draw(shown)
            elif name == "Host tier":
                host_tier.draw(shown, here.step)
            elif state is None or log is None:
                st.info("Needs the event log, which this run was too big to keep. Limit the requests.")
            elif name == "Free queue":
                free_queue.draw(shown, state)
            elif name == "Block tables":
                block_tables.draw(shown, state)
            elif name == "Prefix tree":
                prefix_tree.draw(shown, state)
            elif name == "Events":
                events.draw(shown, log, here.step)
            else:
                blocks.draw(shown, state)


def run_json(shown: Shown) -> bytes:
    """Settings, version and summary of the run, as JSON."""
    config, run = shown.config, shown.run
    everything = {
        "simkv": __version__,
        "source": {"kind": config.kind, "name": config.name, "params": dict(config.params), "limit": config.limit, "salts": config.salts},
        "settings": run.settings.to_mapping(),
        "changed_settings": run.settings.changed(),
        "notes": [*run.notes, *run.resolved.notes],
        "verdict": verdict(shown.story),
        "hit_rate_without_eviction": shown.ceiling,
        "summary": shown.summary,
    }
    return json.dumps(plain(everything), indent=2, allow_nan=False).encode()


def _exports(shown: Shown) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "run.json", lambda: run_json(shown), "run.json", "application/json", on_click="ignore", help="Settings, version and summary."
        )
        st.download_button(
            "requests.csv", lambda: requests.csv(shown), "requests.csv", "text/csv", on_click="ignore", help="One line a request."
        )
        navigation.link_to_compare()
