"""Block tables: logical block of a request → physical block of the pool, with who else holds it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import streamlit as st

from simkv.events.folds.pool import PoolState
from simkv.ui import cursor, details, text
from simkv.ui.shown import Shown

MAX_NAMES = 3


def columns(shown: Shown, state: PoolState, request: int, group: int = 0) -> dict[str, list[Any]]:
    """A request's table as columns; empty if the request holds nothing at this step."""
    tables = state.tables(request)
    table = tables[group] if group < len(tables) else np.zeros(0, np.int32)
    size = details.group_block_size(shown, group)
    name = shown.run.workload.id
    prompt = int(shown.run.workload.num_prompt[request])
    refs = state.ref[table]

    def shared_with(block: int, count: int) -> str:
        if block == 0 or count < 2:
            return ""
        others = [name(int(r)) for r in state.owners(block) if int(r) != request]
        return text.some(others, MAX_NAMES)

    return {
        "logical": list(range(len(table))),
        "tokens": [f"{i * size:,}–{(i + 1) * size - 1:,}" for i in range(len(table))],
        "of": [
            "prompt" if (i + 1) * size <= prompt else "output" if i * size >= prompt else "prompt and output" for i in range(len(table))
        ],
        "physical": table.tolist(),
        "ref_cnt": [int(r) if b else 0 for r, b in zip(refs, table, strict=True)],
        "shared with": [shared_with(int(b), int(r)) for b, r in zip(table, refs, strict=True)],
        "hash": [
            "null block" if b == 0 else text.key_hex(int(k)) if k else "not full yet" for b, k in zip(table, state.key[table], strict=True)
        ],
    }


def headline(shown: Shown, state: PoolState, request: int) -> str:
    """What the table shows, in one plain sentence."""
    table = np.concatenate([t[t > 0] for t in state.tables(request)] or [np.zeros(0, np.int32)])
    if not len(table):
        return "holds no block at this step"
    shared = int(np.count_nonzero(state.ref[table] > 1))
    return f"holds {text.counted(len(table), 'block')}, {shared:,} of them shared with other requests"


def pick_request(shown: Shown, state: PoolState) -> int | None:
    """The request to show: the selected one, else one that holds the selected block, else the first that runs now."""
    here = cursor.cursor(shown)
    live = [int(r) for r in state.live()]
    options = live if here.request is None or here.request in live else [here.request, *live]
    if not options:
        return None
    holders = [int(r) for r in state.owners(here.block)] if here.block else []
    chosen = here.request if here.request in options else next((r for r in holders if r in options), options[0])
    key = f"request_{shown.digest}_{state.step}_{chosen}"

    def pick() -> None:
        cursor.move(shown, request=st.session_state[key])

    name = shown.run.workload.id
    label = f"Request ({len(live):,} {'holds' if len(live) == 1 else 'hold'} blocks at this step)"
    st.selectbox(
        label,
        options,
        options.index(chosen),
        format_func=lambda r: name(r) + ("" if r in set(live) else " (not running)"),
        key=key,
        on_change=pick,
    )
    return chosen


def draw_why(shown: Shown, request: int) -> None:
    """The sentence why this request missed, with ways to where it happened."""
    # The log's keys are put in order once for a run, seconds for a long one, and only if somebody asks.
    with st.spinner("Putting the event log's keys in order, once for this run") if not shown.keys_known else nullcontext():
        miss = shown.why(request)
    with st.container(border=True):
        st.text(miss.sentence)
        if miss.evicted_step is not None and miss.evicted_step >= 0:
            st.button(
                "Show the eviction on the map",
                key=f"why_{request}",
                on_click=cursor.move,
                args=(shown,),
                kwargs={"step": int(miss.evicted_step)},
            )


def draw(shown: Shown, state: PoolState) -> None:
    """Draw the tab."""
    left, right = st.columns([1, 2], gap="medium")
    with left:
        request = pick_request(shown, state)
        if request is None:
            st.info("No request holds blocks at this step. Scrub to a busier moment.")
            return
        st.text(f"{shown.run.workload.id(request)} {headline(shown, state, request)}.")
        draw_why(shown, request)
        groups = len(shown.run.resolved.groups)
        label = "sequence" if shown.run.resolved.engine == "vllm-v0" else "KV group"
        group = st.segmented_control(label, range(groups), default=0, required=True, key="kv_group") if groups > 1 else 0
    with right:
        data = columns(shown, state, request, int(group or 0))
        key = f"table_{shown.digest}_{state.step}_{request}_{group}"

        def pick() -> None:
            chosen = st.session_state[key].selection.rows
            if chosen:
                cursor.move(shown, block=data["physical"][chosen[0]])

        st.dataframe(
            data,
            hide_index=True,
            height=300,
            on_select=pick,
            selection_mode="single-row",
            key=key,
            alt="Block table of the request: logical block, physical block, reference count",
            column_config={"physical": st.column_config.NumberColumn(format="localized")},
        )
