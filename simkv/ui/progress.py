"""A replay that is under way: simulated clock, time to go, Cancel."""

from __future__ import annotations

import streamlit as st

from simkv.ui import text
from simkv.ui.run_store import Job, store

LONG_S = 4.0
"""A fleet that has not begun by then is being compiled."""


@st.fragment(run_every=0.4)
def draw(digest: str) -> None:
    """What the replay is doing, how far it is and how long it will take; rerun by itself until it is done."""
    job = store().get(digest)
    if job is None:
        st.info("Cancelled before there was a result. Change a setting or press Run.")
        return
    if job.done.is_set():
        st.rerun()
    st.subheader("Replaying", anchor=False)
    st.progress(share(job), sentence(job))
    st.button(
        "Cancel",
        on_click=job.cancelled.set,
        disabled=job.cancelled.is_set(),
        help="What was simulated so far is kept and marked as partial.",
    )


def share(job: Job) -> float:
    """How much is done, 0 to 1."""
    return max(0.0, min(1.0, job.progress.fraction)) if job.progress is not None else 0.0


def sentence(job: Job) -> str:
    """The progress in words: phase, simulated clock, requests, time to go."""
    if job.cancelled.is_set():
        return "Stopping"
    if job.progress is None:
        if job.phase == "compiling":
            return f"Compiling the engine once on this machine, about half a minute ({job.elapsed_s:.0f} s so far). Later starts take 3 s."
        once = "; the first one with this router is compiled once on this machine" if job.config.fleet and job.elapsed_s > LONG_S else ""
        return f"Preparing the replay ({job.elapsed_s:.0f} s{once})"
    if job.phase == "folding":
        return f"Drawing the block map ({job.elapsed_s:.0f} s)"
    if job.phase == "counting":
        return f"Counting what routing kept and lost ({job.elapsed_s:.0f} s)"
    p = job.progress
    left = f", about {text.seconds(round(job.left_s))} to go" if job.left_s is not None else ""
    return f"Simulated clock {text.clock(p.simulated_s)}, {p.finished:,} of {text.counted(p.requests, 'request')} finished{left}"
