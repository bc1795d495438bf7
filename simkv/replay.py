"""Replay a workload through an engine: the way from requests to a run, for the command line, the app and notebooks."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import COUNTERS, CRASHED, DONE, STALLED, STATUS, UNTIL, Engine, Resolved
from simkv.engine.engines import bytes_needed, default_settings, for_engine, make_engine, merge, resolve_for
from simkv.engine.step_time import StepTime, for_workload
from simkv.engine.step_time_layout import STEP_INDEX
from simkv.errors import SettingsError
from simkv.events.log import EventLog
from simkv.events.turns import Turns
from simkv.latency import percentiles, percentiles_of_gaps
from simkv.memory import available_bytes
from simkv.settings import Settings
from simkv.workload.workload import Workload

__all__ = ["MAX_EVENTS", "REQUEST_RESULT", "STATUS", "Progress", "Run", "replay"]

MAX_EVENTS = 120_000_000
"""Events kept at most (9 bytes each); a longer run goes on without its log and says so."""

REQUEST_RESULT = np.dtype(
    [
        ("arrive", "f8"),  # seconds (steps in step mode); of a chained request: when it really arrived
        ("scheduled", "f8"),  # first admission
        ("first_token", "f8"),
        ("finish", "f8"),
        ("hit", "i4"),  # tokens found cached at the first admission
        ("preempted", "i4"),
        ("generated", "i4"),
        ("status", "u1"),  # index into STATUS
    ]
)
"""What became of each request. Times are NaN where it did not come to that."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is. ``fraction`` counts ended requests; ``simulated_s`` is the simulated clock."""

    simulated_s: float
    finished: int
    requests: int
    steps: int
    fraction: float
    wall_s: float


@dataclass(frozen=True, eq=False)
class Run:
    """A finished, cancelled ("partial"), stuck ("stalled") or dead ("crashed") replay. Arrays are read-only.

    ``resolved`` is the engine's own ``Resolved`` (simkv/engine/contract.py).
    ``turns``, ``gaps`` and ``log`` are in the layouts of simkv/events/layout.py; ``log`` is ``None`` when events were
    off or more than ``max_events`` (then ``notes`` says so).
    ``host`` has the counters of the host tier by name (simkv/engine/offload/layout.py); ``None`` without one.
    """

    workload: Workload
    settings: Settings
    resolved: Any
    step_time: StepTime
    requests: npt.NDArray[np.void]
    turns: Turns
    gaps: npt.NDArray[np.void]
    log: EventLog | None
    counters: dict[str, int]
    status: str
    end_time_s: float
    wall_s: float
    compile_s: float
    notes: tuple[str, ...] = ()
    host: dict[str, int] | None = None

    @property
    def steps(self) -> npt.NDArray[np.void]:
        """``STEP[t]``, one row per turn of the engine's loop."""
        return self.turns.steps

    @cached_property
    def _summary(self) -> dict[str, Any]:
        c, r = self.counters, self.requests
        timed = self.step_time.kind != STEP_INDEX
        nothing = {"p50": None, "p95": None, "p99": None}
        return {
            "requests": len(r),
            "finished": c["finished"],
            "aborted": c["aborted"],
            "rejected": c["rejected"],
            "status": self.status,
            **counted(c, self.workload.prompts_have_content),
            "end_time_s": self.end_time_s,
            "wall_s": self.wall_s,
            "peak_rss_mb": peak_rss_mb(),
            "queue_s": percentiles(r["scheduled"] - r["arrive"]) if timed else nothing,
            "ttft_s": percentiles(r["first_token"] - r["arrive"]) if timed else nothing,
            "itl_s": percentiles_of_gaps([(self.turns, self.gaps)]) if timed else nothing,
            "e2e_s": percentiles((r["finish"] - r["arrive"])[r["status"] == STATUS.index("finished")]) if timed else nothing,
        }

    def summary(self) -> dict[str, Any]:
        """Plain figures, ready for JSON. Tokens, seconds (``end_time_s`` is in steps for a workload timed in steps)."""
        return dict(self._summary)


def counted(c: Mapping[str, int], has_content: bool) -> dict[str, Any]:
    """A summary's figures that are counters (simkv/engine/contract.py), of one engine or summed over a fleet."""
    return {
        "steps": c["turns"],
        "scheduled_tokens": c["tokens"],
        "queries": c["queries"],
        "hits": c["hits"],
        "hit_rate": c["hits"] / c["queries"] if c["queries"] and has_content else None,
        "preemptions": c["preemptions"],
        "recompute_queries": c["recompute_queries"],
        "recompute_hits": c["recompute_hits"],
        "stored_blocks": c["stored"],
        "removed_blocks": c["removed"],
    }


def peak_rss_mb() -> float | None:
    """Largest memory this process has held, in 10^6 bytes; ``None`` where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def replay(
    workload: Workload,
    settings: Settings | None = None,
    step_time: StepTime | None = None,
    *,
    events: bool = True,
    progress: Callable[[Progress], bool] | None = None,
    max_events: int | None = MAX_EVENTS,
) -> Run:
    """Replay ``workload`` through the engine of ``settings``.

    Args:
        step_time: how long a step takes; default: the workload's own rule, else a roofline of model and GPU.
        events: keep the event log (needed for everything that shows blocks).
        progress: called several times a second; returning False cancels and keeps what there is.
        max_events: see MAX_EVENTS.

    Raises:
        SettingsError: what the engine would refuse at start-up, or a pool whose model does not fit in this machine's memory.
    """
    from simkv.diagnosis.run_notes import run_notes
    from simkv.fleet.simulation import Simulation

    workload, foreign = for_engine(workload, settings or default_settings(workload))
    settings = merge(settings or default_settings(workload), workload)
    resolved = resolve_for(settings, workload)
    check_memory([resolved], len(workload))
    step_time = step_time or for_workload(workload, settings)
    engine = make_engine(workload, resolved, step_time.record(), log=events, max_events=max_events)
    started = time.perf_counter()
    engine.advance(-1.0)
    compile_s = time.perf_counter() - started
    started = time.perf_counter()

    def report() -> bool:
        c, n = engine.counters, max(len(workload), 1)
        ended = int(c.finished + c.aborted + c.rejected)
        assert progress is not None
        return progress(Progress(float(c.now), ended, len(workload), int(c.turns), ended / n, time.perf_counter() - started))

    simulation = Simulation(engine, UNTIL, workload.duration_s, report if progress else None)
    simulation.run()
    ends = {DONE: "complete", STALLED: "stalled", CRASHED: "crashed"}
    status = ends.get(simulation.outcome, "partial" if simulation.cancelled else "complete")
    found = collect(engine, settings, step_time, status, time.perf_counter() - started, compile_s, [foreign] if foreign else [])
    return dataclasses.replace(found, notes=(*found.notes, *run_notes(found)))


def check_memory(replicas: Sequence[Resolved], requests: int) -> None:
    """Raise if what every replay fills at once, the records of blocks and requests, is more than there is.

    Raises:
        SettingsError: it names the largest pool that would do.
    """
    room = available_bytes()
    if room is None or not replicas:
        return
    pools, per_block, others = 0, 0, requests * REQUEST_RESULT.itemsize
    for s in replicas:
        per_block, more = bytes_needed(s, requests)
        pools += s.num_gpu_blocks * per_block
        others += more
    if pools + others > room:
        each = f" for each of {len(replicas)} replicas" if len(replicas) > 1 else ""
        raise SettingsError(
            "num_gpu_blocks",
            replicas[0].num_gpu_blocks,
            f"at most {max(room - others, 0) // (per_block * len(replicas)):,} on this machine{each}",
            f"The replay needs {per_block} bytes a block, {(pools + others) / 1e9:,.1f} GB with its {requests:,} requests;"
            f" {room / 1e9:,.1f} GB are available",
        )


def collect(engine: Engine, settings: Settings, step_time: StepTime, status: str, wall_s: float, compile_s: float, notes: list[str]) -> Run:
    """What an engine did, as a Run."""
    c, reqs = engine.counters, engine.state.reqs
    result = np.zeros(len(engine.workload), REQUEST_RESULT)
    for name in ("arrive", "scheduled", "first_token", "finish", "hit", "preempted", "status"):
        result[name] = reqs[name]
    result["generated"] = engine.generated()
    if engine.log_dropped:
        notes.append(
            f"The event log was given up beyond {engine.max_events:,} events; figures are complete, blocks cannot be shown."
            " Limit the requests to see them."
        )
    if status in ("stalled", "crashed"):
        notes.append(engine.why_stalled())
    notes.extend(engine.remarks() if hasattr(engine, "remarks") else ())
    gaps, log = engine.gaps, engine.event_log()
    for array in (result, gaps):
        array.setflags(write=False)
    return Run(
        workload=engine.workload,
        settings=settings,
        resolved=engine.settings,
        step_time=step_time,
        requests=result,
        turns=engine.turns if log is None else log.turns,
        gaps=gaps,
        log=log,
        counters={name: int(c[name]) for name in COUNTERS},
        status=status,
        end_time_s=float(c.now) if step_time.kind != STEP_INDEX else float(c.steps),
        wall_s=wall_s,
        compile_s=compile_s,
        notes=tuple(notes),
        host=getattr(engine, "host_counters", None),
    )
