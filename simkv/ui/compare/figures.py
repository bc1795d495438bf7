"""The table of figures: what is better than A is green, what is worse red, the best of a row bold. Nothing in it comes from a trace."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from simkv.comparison import words
from simkv.comparison.metrics import HIGHER, Row

_LEFT = ("Queue time", "TTFT", "Inter-token", "End to end")


def draw(rows: Sequence[Row], names: Sequence[str]) -> None:
    """Two tables beside each other: what the cache and the scheduler did, and what users feel of it."""
    felt = [row for row in rows if row.metric.title.startswith(_LEFT)]
    rest = [row for row in rows if row not in felt]
    halves = [half for half in (rest, felt) if half]
    columns = st.columns(len(halves), gap="large") if len(names) < 4 else [st.container() for _ in halves]
    for column, half in zip(columns, halves, strict=True):
        column.html(html(half, names))
    with st.expander("What each figure is"):
        st.dataframe(
            {
                "figure": [row.metric.title for row in rows],
                "definition": [row.metric.about for row in rows],
                "better": [words.better_is(row.metric) for row in rows],
            },
            hide_index=True,
        )


def html(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The rows as an HTML table."""
    head = "".join(f"<th scope=col>{escape(n)}</th>" for n in names)
    body = "".join(_row(row) for row in rows)
    return f"<table class=figures><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def best(row: Row) -> set[int]:
    """The sides with the best figure, if it is not everybody's."""
    known = [v for v in row.values if v is not None]
    if all(row.verdict(i) in ("", "same") for i in range(1, len(row.values))):
        return set()
    top = max(known) if row.metric.better == HIGHER else min(known)
    return {i for i, v in enumerate(row.values) if v == top}


def _row(row: Row) -> str:
    top, cells = best(row), []
    for i, given in enumerate(row.values):
        shown, moved = escape(words.value(row.metric, given)), words.change(row, i)
        shown = f"<b>{shown}</b>" if i in top else shown
        verdict = row.verdict(i)
        title = f" title='{verdict} than A'" if verdict in ("better", "worse") else ""
        beside = f"<span class='{verdict or 'neither'}'{title}>{escape(moved)}</span>" if i else ""
        cells.append(f"<td>{shown}{beside}</td>")
    about = escape(row.metric.about, quote=True)
    return f'<tr><th scope=row title="{about}">{escape(row.metric.title)}</th>{"".join(cells)}</tr>'
