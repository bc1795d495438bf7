"""Where the decisions of two runs part: the first admission, hit or preemption that is not the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.comparison.causes import CACHING_OFF, CLEARED, EDGE, EVICTED, LATER, NEVER, NOT_INSERTED, NOT_USABLE, Causes, Lost, found, unit
from simkv.comparison.waits import seats_taken
from simkv.events import layout as ev
from simkv.replay import Run
from simkv.text import clock, counted, seconds

SAME_PLAN = ("prefill", "decode", "admitted", "preempted", "hits")
"""Columns of a step that say what was decided in it."""
MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference.

    Args:
        at: simulated time (steps in step mode).
        request: whom it concerns, where it is one request.
        sentence: in words.
    """

    at: float
    request: int | None
    sentence: str


def parting(causes: Causes, names: tuple[str, str]) -> Parting | None:
    """The first decision that differs; ``None`` if there is none.

    Runs of one engine are held against each other step by step, those of two engines, whose steps are not built alike,
    admission by admission.
    """
    a, b = causes.runs
    return _by_step(causes, names) if a.resolved.engine == b.resolved.engine else _by_admission(causes, names)


def _by_step(causes: Causes, names: tuple[str, str]) -> Parting | None:
    a, b = causes.runs
    both = min(len(a.steps), len(b.steps))
    different = np.zeros(both, np.bool_)
    for column in SAME_PLAN:
        different |= a.steps[column][:both] != b.steps[column][:both]
    turn = min(int(np.argmax(different)) if different.any() else both, _turn_of_other_admission(causes))
    if turn >= both:
        return None if len(a.steps) == len(b.steps) else _ended(causes, names, both)
    at = float(min(a.steps["time"][turn], b.steps["time"][turn]))
    request, said = _difference(causes, names, turn)
    return Parting(at, request, f"They part {_when(a, at, int(a.steps['schedule'][turn]))}: {said}.")


def _difference(causes: Causes, names: tuple[str, str], turn: int) -> tuple[int | None, str]:
    """What is not the same in a turn that both sides come to in the same state: whom it concerns, and in words."""
    a, b = causes.runs
    mine, theirs = (_admitted(run, turn) for run in causes.runs)
    extra = [[r for r in mine if r not in theirs], [r for r in theirs if r not in mine]]
    if extra[0] and extra[1]:
        return extra[0][0], f"{names[0]} admits {_names(a, extra[0])}, {names[1]} {_names(a, extra[1])}"
    for side in (0, 1):
        if extra[side]:
            obstacle = _obstacle(causes.runs[1 - side], turn, extra[side][0])
            return extra[side][0], f"{names[side]} admits {_names(a, extra[side])}, {names[1 - side]} does not: {obstacle}"
    hits = [found(run) for run in causes.runs]
    for request in mine:
        if hits[0][request] != hits[1][request]:
            return request, _hit(causes, request, names)
    thrown = [_of_kind(run, turn, ev.PREEMPTED) for run in causes.runs]
    for side in (0, 1):
        if len(thrown[side]) > len(thrown[1 - side]):
            return thrown[side][0], f"{names[side]} preempts {_names(a, thrown[side])} because no block is free, {names[1 - side]} does not"
    for column, verb, one in (("prefill", "computes", "prompt token"), ("decode", "decodes", "request")):
        x, y = int(a.steps[column][turn]), int(b.steps[column][turn])
        if x != y:
            return None, f"{names[0]} {verb} {counted(x, one)}, {names[1]} {counted(y, one)}"
    return None, "their steps are not the same any more"


def _turn_of_other_admission(causes: Causes) -> int:
    """The first turn that admits another request, or the same with another hit; beyond all turns if there is none."""
    orders, hits = [admissions(run) for run in causes.runs], [found(run) for run in causes.runs]
    both = min(map(len, orders))
    x, y = (order[:both] for order in orders)
    k = np.flatnonzero((x != y) | (hits[0][x] != hits[1][y]))
    at = int(k[0]) if len(k) else both
    turns = [_turn_of_admission(run, order, at) for run, order in zip(causes.runs, orders, strict=True)]
    return min(turns)


def _turn_of_admission(run: Run, order: npt.NDArray[np.int64], k: int) -> int:
    if k >= len(order):
        return len(run.steps)
    return int(np.searchsorted(run.steps["time"], run.requests["scheduled"][order[k]], side="right") - 1)


def _ended(causes: Causes, names: tuple[str, str], both: int) -> Parting:
    longer = 0 if len(causes.runs[0].steps) > both else 1
    run = causes.runs[longer]
    at = float(run.steps["time"][both])
    return Parting(at, None, f"They part {_when(run, at, int(run.steps['schedule'][both]))}: only {names[longer]} goes on.")


def _by_admission(causes: Causes, names: tuple[str, str]) -> Parting | None:
    """The first place in the order of admissions where the request or what it finds is another."""
    a, b = causes.runs
    hits = tuple(found(run) for run in causes.runs)
    orders = tuple(admissions(run) for run in causes.runs)
    both = min(map(len, orders))
    x, y = (order[:both] for order in orders)
    different = (x != y) | (hits[0][x] != hits[1][y])
    if not different.any():
        if len(orders[0]) == len(orders[1]):
            return _first_preemption(causes, names) or _first_delay(causes, orders[0], names)
        more = int(len(orders[1]) > both)
        request = int(orders[more][both])
        at = float(causes.runs[more].requests["scheduled"][request])
        said = f"{names[more]} admits {a.workload.id(request)}, {names[1 - more]} admits nobody any more"
        return Parting(at, request, f"They part {_when(a, at, -1)}: {said}.")
    k = int(np.argmax(different))
    first, second = int(x[k]), int(y[k])
    at = float(min(a.requests["scheduled"][first], b.requests["scheduled"][second]))
    if first == second:
        return Parting(at, first, f"They part {_when(a, at, -1)}: {_hit(causes, first, names)}.")
    said = f"as admission number {k + 1:,} {names[0]} takes {a.workload.id(first)}, {names[1]} {a.workload.id(second)}"
    return Parting(at, first, f"They part {_when(a, at, -1)}: {said}.")


def _first_preemption(causes: Causes, names: tuple[str, str]) -> Parting | None:
    """For runs that admit alike: the side that preempts first, or alone."""
    at = [_first_time(run, "preempted") for run in causes.runs]
    if at[0] == at[1]:
        return None
    side = int(at[1] < at[0])
    return Parting(at[side], None, f"They part {_when(causes.runs[side], at[side], -1)}: only {names[side]} throws a running request back.")


def _first_delay(causes: Causes, order: npt.NDArray[np.int64], names: tuple[str, str]) -> Parting | None:
    """For runs that admit alike: the first request that one side admits later by more than any step takes."""
    a, b = causes.runs
    if not len(order):
        return None
    late = b.requests["scheduled"][order] - a.requests["scheduled"][order]
    far = np.flatnonzero(np.abs(late) > max(float(run.steps["duration"].max()) for run in causes.runs))
    if not len(far):
        return None
    request, side = int(order[far[0]]), int(late[far[0]] > 0)
    slow, at = causes.runs[side], float(causes.runs[1 - side].requests["scheduled"][request])
    turn = max(0, int(np.searchsorted(slow.steps["time"], at, side="right")) - 1)
    said = f"{names[1 - side]} admits {a.workload.id(request)}, {names[side]} does not yet: {_obstacle(slow, turn, request)}"
    return Parting(at, request, f"They part {_when(slow, at, -1)}: {said}.")


def _first_time(run: Run, column: str) -> float:
    rows = np.flatnonzero(run.steps[column] > 0)
    return float(run.steps["time"][rows[0]]) if len(rows) else np.inf


def admissions(run: Run) -> npt.NDArray[np.int64]:
    """Requests in the order of their first admissions; without an event log by time, ties in order of the workload."""
    if run.log is not None:
        events = run.log.events
        return np.asarray(events["req"][(events["kind"] & ev.KIND_MASK) == ev.ADMITTED], np.int64)
    scheduled = run.requests["scheduled"]
    return np.argsort(scheduled, kind="stable")[: int(np.isfinite(scheduled).sum())].astype(np.int64)


def _admitted(run: Run, turn: int) -> list[int]:
    """Requests admitted for the first time in a turn."""
    if run.log is None:
        return [int(r) for r in np.flatnonzero(run.requests["scheduled"] == run.steps["time"][turn])]
    return _of_kind(run, turn, ev.ADMITTED)


def _of_kind(run: Run, turn: int, kind: int) -> list[int]:
    """Requests of a turn's rows of one kind, in their order; none without an event log."""
    if run.log is None:
        return []
    events = run.log.events[run.log.turn_slice(turn)]
    return [int(r) for r in events["req"][(events["kind"] & ev.KIND_MASK) == kind]]


def _hit(causes: Causes, request: int, names: tuple[str, str]) -> str:
    """What each side finds of a prompt, and why not the same."""
    a = causes.runs[0]
    x, y = (int(found(run)[request]) for run in causes.runs)
    prompt = int(a.workload.num_prompt[request])
    lost = causes.of(request)
    why = f", because {reason(causes, lost[-1], names)}" if lost else ""
    return f"{a.workload.id(request)} finds {x:,} of {prompt:,} tokens in {names[0]}, {y:,} in {names[1]}{why}"


def reason(causes: Causes, lost: Lost, names: tuple[str, str]) -> str:
    """Why one prompt found less, as half a sentence."""
    run, name, w = causes.runs[lost.side], names[lost.side], causes.runs[0].workload
    writer = w.id(lost.writer) if lost.writer is not None else ""
    if lost.cause == EDGE:
        return f"{name} hits only whole blocks of {unit(run)} tokens"
    if lost.cause == CACHING_OFF:
        return f"{name} has no prefix cache"
    if lost.cause == EVICTED:
        taker = f" to make room for {w.id(lost.taker)}" if lost.taker is not None else ""
        return f"{name} had evicted {_ago(run, lost)}what {writer} had left{taker}"
    if lost.cause == CLEARED:
        return f"{name}'s cache had been cleared"
    if lost.cause == NOT_INSERTED:
        return f"in {name} {writer} was admitted but its blocks were not in the cache yet"
    if lost.cause == NEVER:
        return f"{name} never admitted it"
    if lost.cause == LATER:
        return f"in {name} {writer}, who brings this content, had not been admitted yet"
    if lost.cause == NOT_USABLE:
        return f"{name} had it cached but could not resume on it"
    return "of something the logs do not tell"


def _ago(run: Run, lost: Lost) -> str:
    if lost.turn is None or run.workload.time_unit != "seconds":
        return ""
    return f"{seconds(max(0.0, float(run.requests['scheduled'][lost.request] - run.steps['time'][lost.turn])))} before "


def _obstacle(run: Run, turn: int, request: int) -> str:
    """What stood against the admission of a request in a turn."""
    steps, r = run.steps, run.resolved
    running, free, tokens = (int(steps[name][turn]) for name in ("running", "free", "prefill"))
    if running >= r.max_running:
        return seats_taken("its", r.max_running)
    tokens += int(steps["decode"][turn])
    smallest = r.block_size if r.engine == "sglang" else 1  # SGLang's chunks are whole pages
    if tokens + smallest > r.token_budget:
        return f"its step is full with {tokens:,} tokens"
    need = int(r.asked(run.workload)[request]) if hasattr(r, "asked") else int(run.workload.num_prompt[request])
    need = -(-need // r.block_size)
    left = f"{free:,} of {r.num_gpu_blocks - 1:,} blocks are free"
    if need > free:
        return f"{left} and the request takes {'' if hasattr(r, 'asked') else 'up to '}{need:,}"
    return f"{running:,} of {r.max_running:,} seats are taken, {left}, the step has {tokens:,} tokens"


def _when(run: Run, at: float, schedule: int) -> str:
    step = f"step {schedule:,}" if schedule >= 0 else ""
    if run.workload.time_unit != "seconds":
        return f"at {step or f'step {at:,.0f}'}"
    return f"after {seconds(at) if at < 600 else clock(at)} of simulated time" + (f" ({step})" if step else "")


def _names(run: Run, requests: Sequence[int]) -> str:
    head = ", ".join(run.workload.id(r) for r in requests[:MOST_NAMES])
    return head if len(requests) <= MOST_NAMES else f"{head} and {len(requests) - MOST_NAMES:,} more"
