"""Replay a workload through a fleet: replicas behind routers, deploys and failures included."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import COUNTERS, NOT_ARRIVED, STATUS
from simkv.engine.engines import default_settings, for_engine, merge, resolve_for
from simkv.engine.step_time import StepTime, for_workload
from simkv.engine.step_time_layout import STEP_INDEX
from simkv.events.fleet_log import FleetLog
from simkv.latency import percentiles, percentiles_of_gaps
from simkv.replay import MAX_EVENTS, REQUEST_RESULT, Progress, Run, check_memory, collect, counted, peak_rss_mb
from simkv.settings import Settings
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload

__all__ = ["FleetRun", "replay_fleet"]

NOTHING = {"p50": None, "p95": None, "p99": None}


@dataclass(frozen=True, eq=False)
class FleetRun:
    """A finished, cancelled ("partial") or stuck ("stalled") run of a fleet. Arrays are read-only.

    ``workload`` holds the traffic and, behind it, the warming requests of deploys (``traffic`` says how many are traffic).
    ``requests`` are REQUEST_RESULT rows of all of them, timed from the first arrival at a router; ``placed`` is the replica
    that served each (-1: none), ``attempts`` how often its replica died before.
    ``decisions``, ``scores``, ``operations`` and ``branches`` are those of FleetLog (simkv/events/fleet_log.py).
    """

    workload: Workload
    traffic: int
    settings: Settings
    fleet: FleetSettings
    replicas: tuple[Run, ...]
    requests: npt.NDArray[np.void]
    placed: npt.NDArray[np.int32]
    attempts: npt.NDArray[np.int32]
    decisions: npt.NDArray[np.void]
    scores: npt.NDArray[np.float32]
    branches: tuple[str, ...]
    prefers: str
    operations: npt.NDArray[np.void]
    counters: dict[str, int]
    status: str
    end_time_s: float
    wall_s: float
    compile_s: float
    notes: tuple[str, ...] = ()

    def replica(self, i: int) -> Run:
        """One replica as a run of its own: its log, turns and counters; requests served elsewhere never arrived there."""
        return self.replicas[i]

    @cached_property
    def log(self) -> FleetLog | None:
        """The one event log of the fleet; ``None`` if a replica's was off or given up."""
        logs = [r.log for r in self.replicas if r.log is not None]
        if len(logs) < len(self.replicas):
            return None
        return FleetLog(logs, self.decisions, self.scores, self.operations, self.branches, self.prefers)

    @cached_property
    def _summary(self) -> dict[str, Any]:
        c, mine = self.counters, self.requests[: self.traffic]
        timed = any(r.step_time.kind != STEP_INDEX for r in self.replicas)
        ended = mine["status"] == STATUS.index("finished")
        return {
            "requests": self.traffic,
            "finished": int(np.count_nonzero(ended)),
            "aborted": int(np.count_nonzero(mine["status"] == STATUS.index("aborted"))),
            "rejected": int(np.count_nonzero(mine["status"] == STATUS.index("rejected"))),
            "never_served": int(np.count_nonzero(self.placed[: self.traffic] < 0)),
            "sent_again": int(np.count_nonzero(self.attempts[: self.traffic])),
            "status": self.status,
            "replicas": len(self.replicas),
            "router": self.fleet.router,
            **counted(c, self.workload.prompts_have_content),
            "end_time_s": self.end_time_s,
            "wall_s": self.wall_s,
            "peak_rss_mb": peak_rss_mb(),
            "queue_s": percentiles(mine["scheduled"] - mine["arrive"]) if timed else NOTHING,
            "ttft_s": percentiles(mine["first_token"] - mine["arrive"]) if timed else NOTHING,
            "itl_s": percentiles_of_gaps([(r.turns, r.gaps) for r in self.replicas]) if timed else NOTHING,
            "e2e_s": percentiles((mine["finish"] - mine["arrive"])[ended]) if timed else NOTHING,
            "per_replica": [self._of_replica(i, timed) for i in range(len(self.replicas))],
        }

    def _of_replica(self, i: int, timed: bool) -> dict[str, Any]:
        run, c = self.replicas[i], self.replicas[i].counters
        mine = self.requests[: self.traffic][self.placed[: self.traffic] == i]
        ttft = mine["first_token"] - mine["arrive"]
        return {
            "replica": i,
            "requests": len(mine),
            "prompt_tokens": int(self.workload.num_prompt[: self.traffic][self.placed[: self.traffic] == i].sum()),
            "queries": c["queries"],
            "hits": c["hits"],
            "hit_rate": c["hits"] / c["queries"] if c["queries"] and self.workload.prompts_have_content else None,
            "scheduled_tokens": c["tokens"],
            "preemptions": c["preemptions"],
            "stored_blocks": c["stored"],
            "removed_blocks": c["removed"],
            "busy_s": run.turns.busy_s if timed else None,
            "ttft_s": percentiles(ttft) if timed else NOTHING,
        }

    def summary(self) -> dict[str, Any]:
        """Plain figures, ready for JSON, under the names of ``Run.summary``; ``per_replica`` has those of each replica."""
        return dict(self._summary)


def replay_fleet(
    workload: Workload,
    settings: Settings | None = None,
    fleet: FleetSettings | None = None,
    step_time: StepTime | None = None,
    *,
    events: bool = True,
    progress: Callable[[Progress], bool] | None = None,
    max_events: int | None = MAX_EVENTS,
    truth: bool = True,
) -> FleetRun:
    """Replay ``workload`` through a fleet of replicas.

    Args:
        settings: of every replica; ``fleet.overrides`` changes single ones.
        fleet: replicas, routers, operations; default: one replica, which gives what ``replay`` gives.
        step_time: how long a step takes; default: the workload's own rule, else each replica's roofline.
        events: keep the event log.
        progress: called several times a second; returning False cancels and keeps what there is.
        max_events: for the whole fleet; see simkv.replay.MAX_EVENTS.
        truth: write beside every decision what the replicas' caches really held.

    Raises:
        SettingsError: what an engine or a router would refuse at start-up, or pools that do not fit in this machine's memory.
    """
    from simkv.diagnosis.aliasing import aliasing_note
    from simkv.diagnosis.run_notes import fleet_notes
    from simkv.fleet.fleet import Fleet
    from simkv.fleet.kv_feed import KVFeed
    from simkv.fleet.replicas import Plan, Replicas
    from simkv.fleet.routers import Routers
    from simkv.fleet.routing import Content, policy_class
    from simkv.fleet.truth import Truth
    from simkv.fleet.warming import with_warming

    fleet = fleet or FleetSettings()
    started = time.perf_counter()
    traffic = len(workload)
    workload, foreign = for_engine(workload, settings or default_settings(workload))
    notes = [foreign] if foreign else []
    if fleet.router == "round-robin" and fleet.routers == 1 and (aliased := aliasing_note(workload, fleet.replicas)):
        notes.append(aliased)
    base = merge(settings or default_settings(workload), workload)
    workload, warming = with_warming(workload, fleet)
    # The longest request decides the default context length; a warming request is never longer.
    overrides = {number: dict(values) for number, values in fleet.overrides}
    chosen = [_override(base, overrides[i]) if i in overrides else base for i in range(fleet.slots)]
    made: dict[str, Plan] = {}
    plans = []
    for one in chosen:
        key = repr(sorted(one.to_mapping().items(), key=lambda x: x[0]))
        if key not in made:
            made[key] = Plan(resolve_for(one, workload), step_time or for_workload(workload, one))
        plans.append(made[key])
    check_memory([plan.resolved for plan in plans], len(workload))
    most = None if max_events is None else max(max_events // fleet.slots, 1)
    wanted = policy_class(fleet.router).wants_kv_events
    # KV events of some engines are read from their logs, which are thrown away by the way where nobody else wants them.
    replicas = Replicas(workload, plans, log=events, max_events=most, kv_events=wanted)
    routers = Routers(Content(workload, fleet.chars_per_token), fleet, fleet.slots, plans[0].resolved.block_size)
    feed = KVFeed(replicas.engines, fleet.event_lag_s, drain=not events) if wanted else None
    held = Truth(workload, replicas.engines) if truth and workload.prompts_have_content else None
    watch: list[Fleet] = []

    def report() -> bool:
        ended, now = replicas.ended(), watch[0].seen
        assert progress is not None
        clock = float(now) if np.isfinite(now) else 0.0
        return progress(Progress(clock, ended, traffic, replicas.turns(), ended / max(traffic, 1), time.perf_counter() - started))

    run = Fleet(workload, fleet, replicas, routers, warming, report if progress else None, held, feed)
    watch.append(run)
    run.run()
    if wanted and not events:
        replicas.forget_logs()
    watch.clear()  # else the run's arrays wait for the garbage collector
    found = _collect(run, base, chosen, traffic, time.perf_counter() - started, notes)
    return replace(found, notes=(*found.notes, *fleet_notes(found)))


def _override(base: Settings, values: dict[str, Any]) -> Settings:
    from simkv.settings import settings_from

    if values.get("engine", base.engine) != base.engine:
        return settings_from(values)
    return type(base).from_mapping({**base.to_mapping(), **values})


def _collect(run: Any, base: Settings, chosen: Sequence[Settings], traffic: int, wall: float, notes: list[str]) -> FleetRun:
    replicas, workload = run.replicas, run.workload
    n = len(workload)
    parts: list[Run] = []
    requests = np.zeros(n, REQUEST_RESULT)
    for name in ("scheduled", "first_token", "finish"):
        requests[name] = np.nan
    requests["arrive"] = run.arrived
    placed = replicas.placed.copy()
    stuck = set(run.stuck)
    status = "partial" if run.cancelled else "stalled" if stuck else "complete"
    for slot, engine in enumerate(replicas.engines):
        if engine is None:
            engine = replicas.never_started(slot)
        whole = collect(engine, chosen[slot], replicas.plans[slot].step_time, "stalled" if slot in stuck else status, wall, 0.0, [])
        mine = placed == slot
        requests[mine] = whole.requests[mine]
        requests["arrive"][mine] = run.arrived[mine]
        part = requests.copy()
        for name in ("scheduled", "first_token", "finish"):
            part[name][~mine] = np.nan
        part["status"][~mine] = NOT_ARRIVED
        for name in ("hit", "preempted", "generated"):
            part[name][~mine] = 0
        part.setflags(write=False)
        parts.append(replace(whole, requests=part))
    notes += run.remarks
    notes += [f"Replica {slot}: {note}" for slot, part in enumerate(parts) for note in part.notes if slot in stuck or "log" in note]
    if run.given_up:
        notes.append(
            f"{len(run.given_up):,} requests were given up: their replica died more than {run.settings.retries} times (setting retries)."
        )
    if run.refused:
        notes.append(f"{len(run.refused):,} requests got an error from the router: {run.settings.router} has no answer to such a prompt.")
    unserved = [r for r in run.held if r < traffic] + [r for r in run.arrivals.left() if r < traffic]
    if unserved and not run.cancelled:
        notes.append(
            f"{len(unserved):,} requests were never sent: no replica took requests when they came, or what they follow never ended."
        )
    decisions, scores, branches, prefers = run.routers.log.finished()
    for array in (requests, placed, run.attempts, decisions, scores):
        array.setflags(write=False)
    return FleetRun(
        workload=workload,
        traffic=traffic,
        settings=base,
        fleet=run.settings,
        replicas=tuple(parts),
        requests=requests,
        placed=placed,
        attempts=run.attempts,
        decisions=decisions,
        scores=scores,
        branches=branches,
        prefers=prefers,
        operations=run.operations(),
        counters={name: sum(p.counters[name] for p in parts) for name in COUNTERS},
        status=status,
        end_time_s=max(p.end_time_s for p in parts),
        wall_s=wall,
        compile_s=0.0,
        notes=tuple(notes),
    )
