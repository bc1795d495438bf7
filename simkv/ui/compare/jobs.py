"""The replays of the sides: in the background, one after the other, shared with Explore by the digest of their settings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import streamlit as st

from simkv.comparison.choices import Choice
from simkv.settings.fleet import FleetSettings
from simkv.ui import progress, replaying, sources
from simkv.ui.config import Config, cost
from simkv.ui.run_store import Job, store
from simkv.ui.sidebar import Chosen

_KEPT, _STOPPED = "_compare_jobs", "_compare_stopped"


@dataclasses.dataclass(frozen=True)
class Asked:
    """The question: the same requests under each side's settings."""

    choices: tuple[Choice, ...]
    configs: tuple[Config, ...]
    data: bytes | None

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of the comparison."""
        return tuple(c.digest for c in self.configs)

    @property
    def seconds(self) -> float:
        """Rough seconds all replays take that are not there yet."""
        missing = {c.digest: c for c in self.configs if not _done(c.digest)}
        return sum(cost(sources.asked(c, self.data), c.settings, c.fleet) for c in missing.values())


def asked(chosen: Chosen, choices: Sequence[Choice], fleets: Sequence[FleetSettings | None]) -> Asked:
    """The question out of the left column and the cards; ``fleets`` are the sides'."""
    assert chosen.config is not None
    configs = tuple(dataclasses.replace(chosen.config, settings=c.settings, fleet=f) for c, f in zip(choices, fleets, strict=True))
    return Asked(tuple(choices), configs, chosen.data)


def started(question: Asked, viewer: str) -> list[Job]:
    """The jobs so far: one runs at a time, the next one starts when the one before has ended well."""
    kept: dict[str, Job] = st.session_state.setdefault(_KEPT, {})
    for digest in [d for d in kept if d not in question.key]:
        store().leave(digest, viewer)
        del kept[digest]
    jobs: list[Job] = []
    for config in question.configs:
        job = kept.get(config.digest) or _start(config, question.data, viewer)
        kept[config.digest] = job
        jobs.append(job)
        if not job.done.is_set() or job.error is not None or st.session_state.get(_STOPPED) == question.key:
            break
    return jobs


def finished(question: Asked, jobs: Sequence[Job]) -> bool:
    """Whether there is nothing more to wait for: all have ended, one has failed, or somebody has stopped it."""
    if any(not job.done.is_set() for job in jobs):
        return False
    return len(jobs) == len(question.configs) or jobs[-1].error is not None or st.session_state.get(_STOPPED) == question.key


def wait(question: Asked, viewer: str, patience_s: float) -> list[Job]:
    """The jobs, after waiting for them at most so long."""
    until = time.monotonic() + patience_s
    while True:
        jobs = started(question, viewer)
        left = until - time.monotonic()
        if finished(question, jobs) or left <= 0 or not jobs[-1].done.wait(left):
            return jobs


@st.fragment(run_every=0.4)
def draw(question: Asked, viewer: str) -> None:
    """A bar for each side and Cancel; rerun by itself, it starts the next one and ends with the page's rerun."""
    jobs = started(question, viewer)
    if finished(question, jobs):
        st.rerun()
    st.subheader("Replaying", anchor=False)
    for choice, job in zip(question.choices, jobs, strict=False):
        words = "done" if job.done.is_set() else progress.sentence(job)
        st.progress(1.0 if job.done.is_set() else progress.share(job), f"{choice.name}: {words}")
    for choice in question.choices[len(jobs) :]:
        st.progress(0.0, f"{choice.name}: waits for its turn")
    st.button(
        "Cancel", on_click=stop, args=(question, jobs), help="Sides that are finished are kept; the one under way is kept as partial."
    )


def stop(question: Asked, jobs: Sequence[Job]) -> None:
    """Stop the replay under way and start no further one."""
    st.session_state[_STOPPED] = question.key
    for job in jobs:
        if not job.done.is_set():
            job.cancelled.set()


def again(question: Asked) -> None:
    """Go on after ``stop``: what is partial or has failed is replayed anew."""
    st.session_state.pop(_STOPPED, None)
    kept: dict[str, Job] = st.session_state.get(_KEPT, {})
    for digest in question.key:
        job = kept.get(digest)
        if job is not None and (job.result is None or job.result.run.status == "partial"):
            store().forget(digest)
            del kept[digest]


def _start(config: Config, data: bytes | None, viewer: str) -> Job:
    return store().start(config, lambda job: replaying.work(job, sources.asked(config, data), config), viewer)


def _done(digest: str) -> bool:
    job = st.session_state.get(_KEPT, {}).get(digest) or store().get(digest)
    return job is not None and job.done.is_set()
