"""Runs live here, once per process: replayed in a worker thread, kept by the digest of their settings, never by their arrays.

The compiled core releases the GIL, so the page stays alive while a replay runs. No Streamlit call is made from the worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import streamlit as st

from simkv.errors import SimkvError
from simkv.ui.config import Config
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.shown import Shown

MAX_RUNS = 6
MAX_BYTES = 2_000_000_000
logger = logging.getLogger(__name__)


class ProgressLike(Protocol):
    """What the replay reports (simkv.replay.Progress)."""

    @property
    def simulated_s(self) -> float: ...
    @property
    def finished(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def fraction(self) -> float: ...


@dataclass(eq=False)
class Job:
    """One replay: running, finished, failed or cancelled. Written by the worker, read by the page."""

    config: Config
    work: Callable[[Job], Shown | FleetShown]
    started: float = field(default_factory=time.monotonic)
    phase: str = "reading"
    progress: ProgressLike | None = None
    result: Shown | FleetShown | None = None
    error: SimkvError | None = None
    done: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    viewers: set[str] = field(default_factory=set)

    def report(self, progress: ProgressLike) -> bool:
        """The replay's progress callback: whether to go on."""
        self.phase, self.progress = "replaying", progress
        return not self.cancelled.is_set()

    def run(self) -> None:
        """The worker's whole life. Every failure ends as a sentence."""
        try:
            self.result = self.work(self)
        except SimkvError as problem:
            self.error = problem
        except MemoryError:
            self.error = SimkvError("The replay needs more memory than this machine has. Limit the requests or choose a larger block_size.")
        except Exception as problem:  # the page must stay up; the traceback goes to the server's log
            logger.exception("replay failed")
            self.error = SimkvError(
                f"The replay stopped on an error of simkv itself ({type(problem).__name__}: {problem}). "
                "Please report it with these settings."
            )
        finally:
            self.done.set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the job was asked for."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float | None:
        """Estimated seconds to go, from the share done; ``None`` while that is too little to say."""
        if self.progress is None or not 0.02 < self.progress.fraction < 1:
            return None
        return self.elapsed_s * (1 - self.progress.fraction) / self.progress.fraction


class RunStore:
    """The newest few runs, the oldest thrown out first. Safe to call from any thread."""

    def __init__(self, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self.max_runs, self.max_bytes = max_runs, max_bytes
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, digest: str) -> Job | None:
        """The job of a configuration, if it is known."""
        with self._lock:
            job = self._jobs.get(digest)
            if job:
                self._jobs.move_to_end(digest)
            return job

    def start(self, config: Config, work: Callable[[Job], Shown | FleetShown], viewer: str = "") -> Job:
        """Start a replay, or join the one that already runs or has ended well."""
        with self._lock:
            job = self._jobs.get(config.digest)
            if job is None or (job.done.is_set() and job.result is None):
                job = self._jobs[config.digest] = Job(config, work)
                threading.Thread(target=job.run, name=f"replay-{config.digest}", daemon=True).start()
            job.viewers.add(viewer)
            self._jobs.move_to_end(config.digest)
            self._trim()
            return job

    def leave(self, digest: str, viewer: str) -> None:
        """A viewer has turned to other settings: a replay nobody waits for is stopped."""
        with self._lock:
            job = self._jobs.get(digest)
            if job is None or job.done.is_set():
                return
            job.viewers.discard(viewer)
            if not job.viewers:
                job.cancelled.set()
                del self._jobs[digest]

    def forget(self, digest: str) -> None:
        """Drop a run, so that it is replayed when asked for again."""
        with self._lock:
            self._jobs.pop(digest, None)

    def _trim(self) -> None:
        ended = [d for d, j in self._jobs.items() if j.done.is_set()]
        size = sum(j.result.nbytes for j in self._jobs.values() if j.result is not None)
        while ended and (len(self._jobs) > self.max_runs or size > self.max_bytes):
            job = self._jobs.pop(ended.pop(0))
            size -= job.result.nbytes if job.result is not None else 0


@st.cache_resource(show_spinner=False)
def store() -> RunStore:
    """The process's one store."""
    return RunStore()
