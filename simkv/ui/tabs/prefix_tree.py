"""What is cached, as a tree of prefixes. Plotly is loaded only when this tab is opened."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import streamlit as st

from simkv.diagnosis.keys import request_keys
from simkv.events.folds.pool import PoolState
from simkv.events.folds.prefix_tree import PrefixTree, prefix_tree
from simkv.ui import cursor, details, text
from simkv.ui.shown import Shown

DRAWN = 400
"""Edges drawn and listed, the ones with the most tokens on and below them."""
HELD, EVICTABLE, LOST = "#2f6db3", "#8ec4e8", "#b9bec6"

ABOUT = {
    "sglang": "Each edge is a run of pages without a branch. SGLang evicts whole leaves of its tree, by radix_eviction_policy; an edge a"
    " request holds is locked. The engine's own nodes may be shorter: it also splits where a match ended.",
    "vllm": "Each edge is a run of blocks without a branch, found by the chain of hashes. vLLM has no tree: it evicts single blocks in the"
    " order of the free queue, a prefix from its end.",
}


def tree_of(shown: Shown, state: PoolState) -> PrefixTree:
    """The tree of the first full-attention group at the shown step."""
    r = shown.run.resolved
    group = next((g for g, x in enumerate(r.groups) if x.type == "full"), 0)
    size = details.group_block_size(shown, group)
    return prefix_tree(state, lambda req: request_keys(shown.run, req), size, size // r.hash_block_size, group)


def biggest(tree: PrefixTree, most: int = DRAWN) -> list[int]:
    """The edges with the most tokens below them; with an edge always all edges above it."""
    if not len(tree):
        return []
    order = np.argsort(-tree.below, kind="stable")[:most]
    return sorted(order.tolist())


def label(shown: Shown, tree: PrefixTree, e: int) -> str:
    """Whose tokens an edge holds and which."""
    start = int(tree.start[e])
    return f"{shown.run.workload.id(int(tree.writer[e]))}, tokens {start:,}–{start + int(tree.tokens[e]) - 1:,}"


def state_word(tree: PrefixTree, e: int) -> str:
    """``held by 2``, ``evictable`` or ``cannot be hit``."""
    if tree.orphan[e]:
        return "cannot be hit: what precedes it is gone"
    return f"held by {int(tree.held[e])}" if tree.held[e] else "evictable"


def rows(shown: Shown, tree: PrefixTree, edges: list[int]) -> dict[str, list[Any]]:
    """The edges as columns."""
    return {
        "edge": [label(shown, tree, e) for e in edges],
        "tokens": [int(tree.tokens[e]) for e in edges],
        "with all below": [int(tree.below[e]) for e in edges],
        "state": [state_word(tree, e) for e in edges],
        "leaf": [bool(tree.leaf[e]) for e in edges],
        "unchanged": [_age(shown, int(tree.since[e])) for e in edges],
        "first block": [int(tree.block[e]) for e in edges],
    }


def _age(shown: Shown, since: int) -> str:
    time = shown.run.steps["time"]
    return "" if since < 0 else text.clock(float(time[since])) if shown.time_unit == "seconds" else f"step {since:,}"


def figure(shown: Shown, tree: PrefixTree, edges: list[int]) -> Any:
    """The edges as an icicle: width is tokens, a child stands below its parent."""
    from plotly.graph_objects import Figure, Icicle

    drawn = set(edges)
    colour = [LOST if tree.orphan[e] else HELD if tree.held[e] else EVICTABLE for e in edges]
    names = [html.escape(label(shown, tree, e)) for e in edges]
    hover = [f"{n}<br>{int(tree.tokens[e]):,} tokens, {state_word(tree, e)}" for n, e in zip(names, edges, strict=True)]
    own = [str(int(tree.parent[e])) if int(tree.parent[e]) in drawn else "root" for e in edges]
    trace = Icicle(
        ids=["root", *(str(e) for e in edges)],
        labels=["", *names],
        parents=["", *own],
        values=[sum(int(tree.below[e]) for e, p in zip(edges, own, strict=True) if p == "root"), *(int(tree.below[e]) for e in edges)],
        branchvalues="total",
        marker={"colors": ["rgba(128,128,128,0.25)", *colour]},
        hovertext=["everything cached", *hover],
        hoverinfo="text",
        tiling={"orientation": "v"},
        leaf={"opacity": 1},
        root_color="rgba(0,0,0,0)",
        sort=False,
    )
    f: Figure = Figure(trace)
    f.update_layout(height=380, margin={"l": 4, "r": 4, "t": 8, "b": 4})
    return f


def draw(shown: Shown, state: PoolState) -> None:
    """Draw the tab."""
    if shown.run.resolved.engine not in ABOUT:
        st.info("This engine keeps nothing of finished requests, so there is no tree of prefixes.")
        return
    tree = tree_of(shown, state)
    if not len(tree):
        st.info("Nothing is cached at the shown step.")
        return
    edges = biggest(tree)
    total, held = int(tree.tokens.sum()), int(tree.tokens[tree.held > 0].sum())
    st.caption(
        f"{text.short_count(total)} tokens cached on {text.counted(len(tree), 'edge')}, {int(tree.leaf.sum()):,} of them leaves;"
        f" {text.short_count(held)} on edges that live requests hold. {ABOUT[shown.run.resolved.engine]}"
    )
    alt = f"Tree of cached prefixes: {len(tree)} edges, {total} tokens"
    st.plotly_chart(figure(shown, tree, edges), width="stretch", key="prefix_tree_chart", alt=alt)
    columns = rows(shown, tree, edges)
    key = f"prefix_tree_{shown.digest}_{state.step}"

    def pick() -> None:
        chosen = st.session_state[key].selection.rows
        if chosen:
            cursor.move(shown, block=columns["first block"][chosen[0]])

    numbers = {name: st.column_config.NumberColumn(format="localized") for name in ("tokens", "with all below", "first block")}
    st.dataframe(
        columns,
        hide_index=True,
        height=260,
        on_select=pick,
        selection_mode="single-row",
        key=key,
        alt="Edges of the prefix tree",
        column_config=numbers,
    )
    if len(edges) < len(tree):
        st.caption(f"The {len(edges):,} edges with the most tokens. Select a row to see its first block on the map.")
