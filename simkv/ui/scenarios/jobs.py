"""Replays of whole scenarios, in the background: once per process and scenario, kept while there is room. No Streamlit call is
made from the worker.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import streamlit as st

from simkv.errors import SimkvError
from simkv.replay import Progress
from simkv.scenarios import Outcome, Scenario, Variant, Verdict, judge, play
from simkv.ui import text
from simkv.ui.replaying import needs_compiling

MOST = 12
"""Results kept; they have no event logs, a few megabytes each."""
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class ScenarioJob:
    """One replay of all variants: running, finished, failed or stopped. Written by the worker, read by the page."""

    scenario: Scenario
    compiling: bool = False
    variant: Variant | None = None
    progress: Progress | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    error: SimkvError | None = None
    done: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def report(self, variant: Variant, progress: Progress) -> bool:
        """The replay's progress callback: whether to go on."""
        self.variant, self.progress, self.compiling = variant, progress, False
        return not self.cancelled.is_set()

    def run(self) -> None:
        """The worker's whole life. Every failure ends as a sentence."""
        try:
            self.compiling = any(needs_compiling(v.settings.compiled_as) for v in self.scenario.variants)
            self.outcomes = play(self.scenario, progress=self.report)
            self.verdicts = judge(self.scenario, self.outcomes)
        except SimkvError as problem:
            self.error = problem
        except Exception as problem:  # the page must stay up; the traceback goes to the server's log
            logger.exception("scenario failed")
            self.error = SimkvError(
                f"The replay stopped on an error of simkv itself ({type(problem).__name__}: {problem}). Please report it with the scenario."
            )
        finally:
            self.done.set()

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        if self.variant is None or self.progress is None:
            return 0.0
        before = self.scenario.variants.index(self.variant)
        return max(0.0, min(1.0, (before + self.progress.fraction) / len(self.scenario.variants)))

    @property
    def sentence(self) -> str:
        """The progress in words."""
        if self.cancelled.is_set():
            return "Stopping"
        if self.variant is None or self.progress is None:
            return "Compiling an engine once on this machine, about half a minute" if self.compiling else "Making the requests"
        p = self.progress
        clock = f"simulated clock {text.clock(p.simulated_s)}, {p.finished:,} of {text.counted(p.requests, 'request')} finished"
        return f"{text.plain(self.variant.name)}: {clock}"


class Jobs:
    """The newest few, by scenario. Safe to call from any thread."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, ScenarioJob] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, scenario: Scenario) -> ScenarioJob | None:
        """The job of a scenario as its file is now; ``None`` if it was not asked for, or its file has changed since."""
        with self._lock:
            job = self._jobs.get(scenario.name)
            return job if job is not None and job.scenario == scenario else None

    def start(self, scenario: Scenario) -> ScenarioJob:
        """Start replaying, or join the one under way."""
        with self._lock:
            job = self._jobs.get(scenario.name)
            if job is None or job.scenario != scenario or (job.done.is_set() and (job.error or job.cancelled.is_set())):
                job = self._jobs[scenario.name] = ScenarioJob(scenario)
                threading.Thread(target=job.run, name=f"scenario-{scenario.name}", daemon=True).start()
            self._jobs.move_to_end(scenario.name)
            while len(self._jobs) > MOST and next(iter(self._jobs.values())).done.is_set():
                self._jobs.popitem(last=False)
            return job


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The process's one collection."""
    return Jobs()
