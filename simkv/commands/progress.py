"""Progress on stderr while a terminal looks on, and Ctrl-C that keeps what there is."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from simkv.commands.text import seconds, whole

if TYPE_CHECKING:
    from simkv.replay import Progress


class Watch(Protocol):
    """Called by the replay now and then; returns False to stop it. ``interrupted`` says that Ctrl-C did."""

    interrupted: bool

    def __call__(self, progress: Progress) -> bool: ...


class _Quiet:
    """No output; only carries the wish to stop."""

    interrupted = False

    def __call__(self, progress: Progress) -> bool:
        return not self.interrupted


class _Bar(_Quiet):
    """A rich progress bar: simulated clock, finished requests, time left."""

    def __init__(self, bar: object, task: object) -> None:
        self._bar, self._task = bar, task

    def __call__(self, progress: Progress) -> bool:
        text = f"{whole(progress.finished)} of {whole(progress.requests)} requests, {seconds(progress.simulated_s)} simulated"
        self._bar.update(self._task, completed=progress.fraction, description=text)  # type: ignore[attr-defined]
        return not self.interrupted


@contextmanager
def watching() -> Iterator[Watch]:
    """A watch for one replay. The first Ctrl-C stops the replay at its next report, a second one everything."""
    if not sys.stderr.isatty():
        with _stoppable(_Quiet()) as watch:
            yield watch
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as bar,
        _stoppable(_Bar(bar, bar.add_task("starting", total=1.0))) as watch,
    ):
        yield watch


@contextmanager
def _stoppable(watch: _Quiet) -> Iterator[Watch]:
    def stop(number: int, frame: FrameType | None) -> None:
        if watch.interrupted:
            raise KeyboardInterrupt
        watch.interrupted = True

    before = None
    with suppress(ValueError):  # not in the main thread: Ctrl-C goes there anyway
        before = signal.signal(signal.SIGINT, stop)
    try:
        yield watch
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
