"""Runs of one workload side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkv.comparison.choices import Choice
from simkv.comparison.explain import Explanation, explain
from simkv.comparison.metrics import Row, table
from simkv.engine.engines import overruled, recorded_engine
from simkv.engine.step_time_layout import STEP_INDEX
from simkv.errors import InputError, SimkvError
from simkv.replay import MAX_EVENTS, Progress, Run, replay
from simkv.workload.workload import Workload

_SAME = ("arrive", "num_prompt", "num_output", "first_run", "runs", "tokens", "salt", "lora", "after", "images", "actions", "priority")


@dataclass(frozen=True, eq=False)
class Side:
    """One column: ``name`` (A … D), what was written for it, its run, what was carried over from A."""

    name: str
    label: str
    run: Run
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two to four runs of the same requests; the first, A, is what the others are held against.

    Raises:
        InputError: the runs cannot be compared: other requests, or seconds beside steps.
    """

    sides: tuple[Side, ...]

    def __post_init__(self) -> None:
        for side in self.sides[1:]:
            check_comparable(self.sides[0], side)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table."""
        return table(tuple(s.run for s in self.sides))

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        """Why B (C, D) differs from A."""
        a = self.sides[0]
        return tuple(explain(a.run, b.run, a.name, b.name) for b in self.sides[1:])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What to know before reading the table, one sentence each."""
        w, out = self.sides[0].run.workload, []
        for side in self.sides:
            out += [f"{side.name}: {note}" for note in side.notes]
            if side.run.status != "complete":
                out.append(f"{side.name} is {side.run.status}: its figures cover the part that was replayed.")
        if w.after is not None and (w.after >= 0).any():
            out.append(
                "Requests that wait for an answer arrive when that answer is there, so a slower side also gets its later requests later."
            )
        without = [s.name for s in self.sides if s.run.log is None]
        if without:
            out.append(f"{' and '.join(without)} kept no event log, so what became of single blocks there is not known.")
        kinds = {s.run.step_time for s in self.sides}
        if len(kinds) > 1:
            out.append("The sides run on different hardware or element types, so a step of the same work takes different times.")
        if not w.prompts_have_content:
            out.append("The source says nothing about content, so no prompt can hit and there is no hit rate.")
        return tuple(out)


def check_comparable(a: Side, b: Side) -> None:
    """Refuse runs that differ in more than settings. Raises InputError."""
    mine, theirs = a.run.workload, b.run.workload
    if (a.run.step_time.kind == STEP_INDEX) != (b.run.step_time.kind == STEP_INDEX):
        raise InputError(f"{a.name} and {b.name} cannot be compared: one is timed in steps, the other in seconds", field=b.name)
    if mine is theirs:
        return
    for name in _SAME:
        x, y = getattr(mine, name), getattr(theirs, name)
        if x is y:
            continue
        if x is None or y is None or x.shape != y.shape or not np.array_equal(x, y):
            raise InputError(
                f"{a.name} and {b.name} cannot be compared: {mine.name} and {theirs.name} are not the same requests ({name} differs)",
                field=b.name,
                hint="Replay both from one source with one seed",
            )


def compare(
    workload: Workload,
    settings: Sequence[Choice],
    *,
    events: bool = True,
    progress: Callable[[Choice, Progress], bool] | None = None,
    max_events: int | None = MAX_EVENTS,
) -> Comparison:
    """Replay the workload once for each of the settings (``choices``), one after the other.

    Args:
        events: keep the event logs: without them the difference in hits is counted but not explained.
        progress: called several times a second with whose replay it is; returning False stops. Sides that are finished by
            then are kept, the one under way is not.

    Raises:
        SimkvError: what an engine would refuse, with the side's name in front.
    """
    done: list[Side] = []
    for choice in settings:
        report = None if progress is None else lambda p, c=choice: progress(c, p)
        try:
            run = replay(workload_for(workload, choice), choice.settings, events=events, progress=report, max_events=max_events)
        except SimkvError as problem:
            raise SimkvError(f"{choice.name}: {problem}") from None
        if run.status == "partial":
            break
        done.append(Side(choice.name, choice.label, run, choice.notes))
    return Comparison(tuple(done))


def workload_for(workload: Workload, choice: Choice) -> Workload:
    """The requests, with only those of the file's recorded settings that this side's settings repeat."""
    if not workload.engine or recorded_engine(workload) != choice.settings.engine:
        return workload
    mine, recorded = choice.settings.to_mapping(), type(choice.settings).from_mapping(workload.engine).to_mapping()
    return overruled(workload, [name for name in workload.engine if mine[name] != recorded[name]])
