"""What followed from the settings and what the reader had to say, one click away."""

from __future__ import annotations

import streamlit as st

from simkv.engine.contract import Resolved
from simkv.engine.resolve import Resolved as VllmResolved
from simkv.engine.step_time import StepTime
from simkv.ui import text
from simkv.workload.workload import ReadReport, Workload


def draw(resolved: Resolved, workload: Workload, step_time: StepTime) -> None:
    """What followed from the settings, one click away."""
    with st.popover("What follows from this", width="stretch"):
        tokens = resolved.num_gpu_blocks * resolved.block_size
        st.text(
            f"{resolved.num_gpu_blocks:,} blocks × {text.counted(resolved.block_size, 'token')} = {tokens:,} tokens of KV cache, "
            "one block of it unusable (null block, padding)."
        )
        st.text(
            f"At most {text.counted(resolved.max_running, 'request')} at once, {resolved.token_budget:,} tokens a step, "
            f"{resolved.max_model_len:,} tokens a request; {resolved.engine} {resolved.version} rules."
        )
        if isinstance(resolved, VllmResolved):
            st.text(f"Async scheduling {'on' if resolved.async_scheduling else 'off'}.")
        if resolved.capacity is not None:
            st.dataframe(
                {
                    "memory of one GPU": [n for n, _ in resolved.capacity.waterfall],
                    "size": [text.memory(b) for _, b in resolved.capacity.waterfall],
                },
                hide_index=True,
            )
            for sentence in resolved.capacity.assumptions:
                st.text(sentence)
        if workload.engine:
            told = ", ".join(f"{name}={value}" for name, value in workload.engine.items())
            st.text(f"Of the settings that the file records, these hold: {told}.")
        for sentence in (*resolved.notes, *workload.report.notes):
            st.text(sentence)
        st.text("Decisions are exact, seconds are a model:")
        for sentence in step_time.assumptions:
            st.text(sentence)


def draw_dropped(report: ReadReport) -> None:
    """What ``Skip bad rows`` left out, where it cannot be overlooked: every figure of the page is without these rows."""
    if report.dropped:
        first = "; ".join(report.first_dropped)
        st.warning(
            text.plain(f"{report.dropped:,} of {report.rows:,} rows were dropped as unusable: {first}", 1000), icon=":material/warning:"
        )
