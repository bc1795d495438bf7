"""Tabs of a fleet that are tables: replicas, prefix groups, decisions against locality, operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from simkv.events.fleet_log import OPERATION_KINDS
from simkv.metrics.rolling import Rolling
from simkv.ui import text
from simkv.ui.fleet import broken
from simkv.ui.fleet.shown import FleetShown

MOST = 500
OPENED = "_fleet_opened"
KEY = "replica"
"""The switch between the fleet and one of its replicas, in the session and in the address."""


def open_replica(i: int) -> None:
    """Turn the switch to a replica. The switch stands outside of the fragment that calls this, so the page is to be drawn again."""
    st.session_state[KEY], st.session_state[OPENED] = str(i), True


def replica_columns(shown: FleetShown) -> dict[str, list[Any]]:
    """One row a replica; kept."""
    if not shown.columns:
        shown.columns.update(_replica_columns(shown))
    return shown.columns


def _replica_columns(shown: FleetShown) -> dict[str, list[Any]]:
    run, x = shown.run, shown.ladder
    out: dict[str, list[Any]] = {
        name: []
        for name in (
            "replica", "requests", "prompt tokens", "hit rate", "endless cache", "computed", "TTFT p50", "TTFT p95",
            "KV usage, mean", "waiting, most", "evicted", "preempted",
        )
    }  # fmt: skip
    for i, summary in enumerate(shown.summary["per_replica"]):
        mine = (run.placed == i) & x.counted
        one = run.replica(i)
        asked, found = int(x.of_queries[mine].sum()), int(x.of_delivered[mine].sum())
        known = asked and x.has_content
        turns = one.turns.rows  # those that share a row have equal gauges and follow each other at once
        usage = Rolling(turns, one.requests, max(one.resolved.num_gpu_blocks - 1, 1), 1.0).mean_usage if len(turns) else np.nan
        row = (
            i,
            summary["requests"],
            asked,
            100 * found / asked if known else None,
            100 * int(x.of_kept[mine].sum()) / asked if known else None,
            asked - found,
            summary["ttft_s"]["p50"],
            summary["ttft_s"]["p95"],
            None if np.isnan(usage) else 100 * usage,
            int(turns["waiting"].max()) if len(turns) else None,
            summary["removed_blocks"],
            summary["preemptions"],
        )
        for column, cell in zip(out.values(), row, strict=True):
            column.append(cell)
    return out


def replicas(shown: FleetShown) -> None:
    """Draw the replicas; a row opens one."""
    key = f"replicas_{shown.digest}"

    def pick() -> None:
        rows = st.session_state[key].selection.rows
        if rows:
            open_replica(rows[0])

    number, share = st.column_config.NumberColumn(format="localized"), st.column_config.NumberColumn(format="%.1f %%")
    duration = st.column_config.NumberColumn(format="%.3f s")
    st.caption(
        "Select a replica to see its block map. Endless cache: what these requests would find on this replica if it never evicted"
        " (restarts empty it). Computed: prompt tokens not found."
    )
    st.dataframe(
        replica_columns(shown),
        hide_index=True,
        height=min(36 * (shown.replicas + 1) + 2, 420),
        on_select=pick,
        selection_mode="single-row",
        key=key,
        alt="Every replica with its requests, hit rate, load and latencies",
        column_config={
            **dict.fromkeys(("requests", "prompt tokens", "computed", "evicted", "preempted", "waiting, most"), number),
            **dict.fromkeys(("hit rate", "endless cache", "KV usage, mean"), share),
            **dict.fromkeys(("TTFT p50", "TTFT p95"), duration),
        },
    )


def decisions(shown: FleetShown) -> None:
    """Draw the decisions against locality; a row shows what the rule compared."""
    found = shown.locality
    if not found.known:
        st.info("This run did not observe what each replica's cache held, so decisions cannot be judged.")
        return
    if not len(found.rows):
        st.success("Every request went to a replica that held as much of its prompt as any other.")
        return
    sent = len(found.rows) / found.known
    st.caption(
        f"{len(found.rows):,} of {text.counted(found.known, 'decision')} ({text.percent(sent)}) sent a request where less of its prompt was"
        f" cached than on another live replica: {text.short_count(found.tokens)} tokens computed again. Select one to see the scores."
    )
    key = f"decisions_{shown.digest}"
    left, right = st.columns([3, 1], gap="medium")
    number = st.column_config.NumberColumn(format="localized")
    with left:
        picked = st.dataframe(
            broken.columns(shown.run, found, MOST),
            hide_index=True,
            height=330,
            on_select="rerun",
            selection_mode="single-row",
            key=key,
            alt="Routing decisions that sent a request away from its prefix",
            column_config=dict.fromkeys(("prompt", "cached there", "cached on it", "lost"), number),
        )
        if len(found.rows) > MOST:
            st.caption(f"The {MOST:,} that lost most tokens.")
    rows = picked["selection"]["rows"]
    with right:
        _scores(shown, int(found.rows[rows[0] if rows else 0]))


def _scores(shown: FleetShown, decision: int) -> None:
    run = shown.run
    d = run.decisions[decision]
    st.markdown(f"**{text.plain(run.workload.id(int(d['req'])), 40)}** to replica {int(d['worker'])}")
    matched = f"matched {int(d['matched']):,} of {int(d['total']):,} units; " if d["total"] else ""
    process = f", router process {int(d['router'])}" if run.fleet.routers > 1 else ""
    again = f", attempt {int(d['attempt']) + 1}" if d["attempt"] else ""
    st.caption(text.plain(f"Branch: {run.branches[int(d['branch'])]}; {matched}{int(d['inflight'])} in flight{process}{again}.", 300))
    table = broken.scores(run, decision)
    if all(v is None for v in table["score"]):
        st.caption("This rule compares no scores.")
        return
    better = {"lower": "The lower score wins.", "higher": "The higher score wins."}.get(run.prefers, "")
    st.dataframe(table, hide_index=True, height=235, placeholder="", alt="Scores of every replica for this decision")
    if better:
        st.caption(better)


def operations(shown: FleetShown) -> None:
    """Draw what happened to the replicas."""
    rows = shown.run.operations
    if not len(rows):
        st.info("Nothing was done to the replicas. Add a deploy, a failure or more replicas under Operations in the sidebar.")
        return
    seconds = shown.time_unit == "seconds"
    again = int((shown.run.attempts > 0).sum())
    st.caption(f"{text.counted(again, 'request was', 'requests were')} sent again after a replica died.")
    st.dataframe(
        {
            "time": [text.clock(t) if seconds else f"step {t:,.0f}" for t in rows["time"].tolist()],
            "replica": rows["replica"].tolist(),
            "what": [OPERATION_KINDS[int(k)] for k in rows["kind"]],
        },
        hide_index=True,
        height=min(36 * (len(rows) + 1) + 2, 330),
        alt="Operations in order of time",
    )
