"""Every request with what it asked for, what the cache gave it and how long it took; select one to learn why it missed."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from simkv.replay import STATUS
from simkv.ui import cursor
from simkv.ui.shown import Shown
from simkv.ui.tabs import block_tables


def columns(shown: Shown) -> dict[str, Any]:
    """The result table as columns, one row a request that came here, times in seconds."""
    run, w = shown.run, shown.run.workload
    here = np.arange(len(w)) if shown.only is None else shown.only
    r = run.requests[here]
    admitted = np.isfinite(r["scheduled"])
    cached = np.where(admitted, r["hit"], 0).astype(np.float64)
    cached[~admitted] = np.nan
    prompt = w.num_prompt[here].astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = cached / prompt if w.prompts_have_content else np.full(len(here), np.nan)
    return {
        "request": [w.id(int(i)) for i in here],
        "arrives": r["arrive"],
        "prompt": prompt,
        "cached": cached,
        "hit rate": share * 100,
        "queue": r["scheduled"] - r["arrive"],
        "TTFT": r["first_token"] - r["arrive"],
        "end to end": r["finish"] - r["arrive"],
        "output": r["generated"],
        "preempted": r["preempted"],
        "status": [STATUS[int(s)] for s in r["status"]],
    }


def csv(shown: Shown) -> bytes:
    """The table as CSV; empty fields where there is no data. Names that a spreadsheet would run as formulas get a quote."""
    import csv as writer
    import io

    data = columns(shown)
    out = io.StringIO()
    lines = writer.writer(out, lineterminator="\n")
    lines.writerow(data)
    for row in zip(*data.values(), strict=True):
        lines.writerow([_cell(v) for v in row])
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return ""
    if isinstance(value, float):
        return round(float(value), 6)
    if isinstance(value, str) and value[:1] in "=+-@\t\r":
        return "'" + value
    return value


def draw(shown: Shown) -> None:
    """Draw the tab."""
    key = f"requests_{shown.digest}"

    def pick() -> None:
        rows = st.session_state[key].selection.rows
        if rows:
            cursor.move(shown, request=rows[0] if shown.only is None else int(shown.only[rows[0]]))

    number, duration = (
        st.column_config.NumberColumn,
        st.column_config.NumberColumn(format="%.3f s" if shown.time_unit == "seconds" else "%.0f"),
    )
    st.caption("Select a request to see why its prompt did not hit further. Cached = prompt tokens found in the cache at first admission.")
    st.dataframe(
        columns(shown),
        hide_index=True,
        height=320,
        on_select=pick,
        selection_mode="single-row",
        key=key,
        placeholder="",
        alt="All requests with prompt tokens, cached tokens and latencies",
        column_config={
            "arrives": duration,
            "prompt": number(format="localized"),
            "cached": number(format="localized"),
            "hit rate": number(format="%.1f %%"),
            "queue": duration,
            "TTFT": duration,
            "end to end": duration,
        },
    )
    here = cursor.cursor(shown)
    if here.request is not None:
        st.text(f"Why {shown.run.workload.id(here.request)} missed")
        block_tables.draw_why(shown, here.request)
        step = admission_step(shown, here.request)
        if step is not None and shown.history is not None:
            st.button("Show its block table when it was admitted", on_click=_open_table, args=(shown, here.request, step))


def admission_step(shown: Shown, request: int) -> int | None:
    """The step that admitted the request; ``None`` if none did."""
    at = float(shown.run.requests["scheduled"][request])
    if not np.isfinite(at):
        return None
    return max(0, int(np.searchsorted(shown.run.steps["time"], at, side="right")) - 1)


def _open_table(shown: Shown, request: int, step: int) -> None:
    cursor.move(shown, request=request, step=step)
    st.session_state[cursor.TAB_KEY] = "Block tables"
