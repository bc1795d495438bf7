"""What holds for every fleet, whatever traffic, routers and operations: random ones of each."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import simkv.replay_fleet as module
from simkv.engine.contract import COUNTERS
from simkv.events.fleet_log import OPERATION_KINDS
from simkv.replay import STATUS, replay
from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings, Settings, SglangSettings
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload
from tests.engine.hand import request, shared, workload

ROUTERS = ("round-robin", "random", "least-load", "power-of-two", "session-ring", "sglang-cache-aware", "llm-d-approx-prefix")
SPEED = {"mode": "virtual", "a": 0.02, "b": 0.0005, "c": 0.001}
SECONDS = 12.0
"""About how long the traffic lasts; operations happen within it."""
ENDED = [STATUS.index(name) for name in ("finished", "aborted", "rejected")]
DEATHS = [OPERATION_KINDS.index(name) for name in ("failed", "restarting", "removed")]
"""What is noted at the moment a replica's process ends."""

by_chance = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def traffic(rng: Random) -> Workload:
    """Chats that go on, shared beginnings, requests that are too long, aborts; a pool that is too small for all at once."""
    requests: list[dict[str, Any]] = []
    for i in range(rng.randrange(1, 40)):
        more: dict[str, Any] = {}
        earlier = [r["id"] for r in requests[-6:]]
        prompt: list[Any] = [shared(rng.randrange(1, 40), rng.randrange(1, 4)), shared(rng.randrange(1, 20), 100 + i)]
        arrive = round(rng.random() * SECONDS, 3)
        if earlier and rng.random() < 0.3:
            parent = rng.choice(earlier)
            prompt, more["after"], arrive = [{"history": parent}, *prompt], parent, rng.choice([0.0, 0.5])
        if rng.random() < 0.5:
            more["session"] = f"s{rng.randrange(4)}"
        if rng.random() < 0.03:
            prompt.append(shared(400, 900 + i))
        requests.append(request(f"r{i}", prompt, rng.randrange(1, 30), arrive=arrive, **more))
    known = [r for r in requests if "after" not in r]
    aborts = [{"at": round(r["arrive"] + rng.random(), 3), "op": "abort", "id": r["id"]} for r in known if rng.random() < 0.08]
    return workload(requests, aborts, time=SPEED, num_gpu_blocks=rng.choice([60, 200]), max_num_seqs=6, max_num_batched_tokens=64)


def operations(rng: Random, replicas: int) -> list[dict[str, Any]]:
    """A handful; replicas that are added may be removed and fail as well."""
    out: list[dict[str, Any]] = []
    added = 0
    for _ in range(rng.randrange(5)):
        kind = rng.choice(["deploy", "fail", "add", "remove"])
        one: dict[str, Any] = {"kind": kind, "at": round(rng.random() * SECONDS, 3), "startup_s": rng.choice([0.0, 1.0, 3.0])}
        if kind in ("fail", "remove"):
            one["replica"] = rng.randrange(replicas + added)
        if kind in ("deploy", "remove"):
            one |= {"drain": rng.random() < 0.5, "drain_timeout_s": rng.choice([1.0, 60.0])}
        if kind == "deploy":
            one |= {"batch": rng.randrange(1, 3), "warm": rng.choice([0, 2])}
        if kind == "fail" and rng.random() < 0.7:
            one["down_s"] = rng.choice([0.0, 2.0])
        if kind == "add":
            one["count"] = rng.randrange(1, 3)
            added += one["count"]
        out.append(one)
    return out


def fleet_of(rng: Random, **more: Any) -> FleetSettings:
    replicas = rng.randrange(1, 5)
    given_ = {"replicas": replicas, "router": rng.choice(ROUTERS), "routers": rng.randrange(1, 3), "seed": rng.randrange(100)}
    return FleetSettings.from_mapping({**given_, "operations": operations(rng, replicas), "retries": rng.choice([0, 3]), **more})


def engine_of(rng: Random) -> Settings:
    if rng.random() < 0.25:
        return SglangSettings(page_size=4, max_total_tokens=800, max_running_requests=6, context_length=300)
    return EngineSettings()


def same(a: npt.NDArray[Any], b: npt.NDArray[Any], what: str = "") -> None:
    """Equal, field by field where there are fields (NaN equals NaN; what pads a row means nothing)."""
    for name in a.dtype.names or (None,):
        np.testing.assert_array_equal(a if name is None else a[name], b if name is None else b[name], f"{what} {name}")


def run_and_check(w: Workload, engine: Settings, fleet: FleetSettings) -> FleetRun:
    """The run, after which every replica's state is asked whether it contradicts itself, as if the requests of others had not come."""
    engines: list[Any] = []
    collect = module._collect

    def look(run: Any, *args: Any) -> FleetRun:
        engines.extend(run.replicas.engines)
        return collect(run, *args)

    with patch.object(module, "_collect", look):
        found = replay_fleet(w, engine, fleet)
    for slot, one in enumerate(engines):
        if one is not None:
            mine = one.state.reqs.copy()
            mine["status"][found.placed != slot] = 0
            one.state = one.state._replace(reqs=mine.view(np.recarray))
            one.check_integrity()
    return found


@given(st.integers(0, 1 << 30))
@by_chance
def test_one_replica_is_the_replay(seed: int) -> None:
    """Row by row, whatever the router: nothing is left to choose.

    No aborts and no refusals: who follows such a request comes at once in a fleet, where the server in front of the engine
    answers, and with the engine's next turn in a replay.
    """
    rng = Random(seed)
    w, engine = traffic(rng), engine_of(rng)
    w = replace(w, actions=w.actions[:0])
    fleet = run_and_check(w, engine, fleet_of(rng, replicas=1, operations=[]))
    alone, mine = replay(w, engine), fleet.replica(0)
    assume(not alone.counters["rejected"] or w.after is None or (w.after < 0).all())
    assert alone.log is not None
    assert mine.log is not None
    # An engine that is left alone for a moment may make a turn that finds nothing to do once more, so turns are not counted.
    for name in ("rows", "blocks", "keys"):
        same(getattr(alone.log, name), getattr(mine.log, name), name)
    came = alone.requests["status"] > 0  # of one whose predecessor never ended a replay says after what time it would have come
    same(alone.requests[came], mine.requests[came])
    assert (mine.requests["status"][~came] == 0).all()
    counted = [{**run.counters, "turns": 0} for run in (alone, mine)]
    assert (counted[0], alone.status, alone.end_time_s) == (counted[1], fleet.status, fleet.end_time_s)


@given(st.integers(0, 1 << 30))
@by_chance
def test_no_request_is_lost(seed: int) -> None:
    """Each ends, or the run says how many did not; and what the replicas count adds up."""
    rng = Random(seed)
    w, engine, settings_ = traffic(rng), engine_of(rng), fleet_of(rng)
    run = run_and_check(w, engine, settings_)
    mine = run.requests[: run.traffic]
    open_ = ~np.isin(mine["status"], ENDED)
    said = [note for note in run.notes if "given up" in note or "never sent" in note]
    reported = sum(int(number.replace(",", "")) for note in said for number in re.findall(r"^[\d,]+", note))
    if run.status == "complete":
        assert int(np.count_nonzero(open_)) == reported, (run.notes, mine["status"][open_])
    assert (run.placed[: run.traffic][mine["status"] == STATUS.index("finished")] >= 0).all()
    assert np.array_equal(np.isfinite(mine["finish"]), mine["status"] == STATUS.index("finished")) or (mine["status"] != 3).any()
    for name in COUNTERS:
        assert run.counters[name] == sum(r.counters[name] for r in run.replicas), name
    s = run.summary()
    assert s["requests"] == len(w)
    for name in ("requests", "queries", "hits", "scheduled_tokens", "preemptions", "stored_blocks", "removed_blocks"):
        whole = s[name] - s["never_served"] if name == "requests" else s[name]
        assert sum(r[name] for r in s["per_replica"]) == whole, name
    served = [set(np.flatnonzero(r.requests["status"] != 0).tolist()) for r in run.replicas]
    assert sum(map(len, served)) == len(set().union(*served)), "a request ends on one replica only"


@given(st.integers(0, 1 << 30))
@settings(by_chance, max_examples=6)
def test_same_seed_same_log(seed: int) -> None:
    rng = Random(seed)
    w, engine, settings_ = traffic(rng), engine_of(rng), fleet_of(rng)
    a, b = (replay_fleet(w, engine, settings_) for _ in range(2))
    for name in ("requests", "placed", "attempts", "decisions", "scores", "operations"):
        same(getattr(a, name), getattr(b, name), name)
    assert (a.notes, a.branches) == (b.notes, b.branches)
    assert a.log is not None
    assert b.log is not None
    for x, y in zip(a.log.replicas, b.log.replicas, strict=True):
        same(x.rows, y.rows)
        same(x.keys, y.keys)


@given(st.integers(0, 1 << 30))
@by_chance
def test_loads_of_decisions_are_those_of_the_log(seed: int) -> None:
    """What a router process has in flight on each replica when it decides, counted again from ends and deaths."""
    rng = Random(seed)
    w, settings_ = traffic(rng), fleet_of(rng, router="least-load")
    run = run_and_check(w, EngineSettings(), settings_)
    assume(not run.counters["rejected"])  # until when the engine had a refused request is not written down
    ends = ends_of(run)
    d = run.decisions
    for k in range(len(d)):
        before = np.arange(len(d)) < k
        # What ends at this very moment may or may not have been seen to end: replicas have a turn in between or not.
        at_once = ends == d["time"][k]
        mine = before & (d["router"] == d["router"][k])
        least, most = (
            np.bincount(d["worker"][mine & there], minlength=len(run.replicas))
            for there in (ends > d["time"][k], (ends > d["time"][k]) | at_once)
        )
        assert least[d["worker"][k]] <= d["inflight"][k] <= most[d["worker"][k]], k
        scored = np.flatnonzero(np.isfinite(run.scores[k]))
        assert (least[scored] <= run.scores[k][scored]).all()
        assert (run.scores[k][scored] <= most[scored]).all()
        assert run.scores[k][scored].min() == d["inflight"][k]


def ends_of(run: FleetRun) -> npt.NDArray[np.float64]:
    """When each decision's request ended where it was sent: its own end, or the death of the replica under it."""
    d, deaths = run.decisions, run.operations[np.isin(run.operations["kind"], DEATHS)]
    out = np.full(len(d), np.inf)
    for k, row in enumerate(d):
        later = deaths["time"][(deaths["replica"] == row["worker"]) & (deaths["time"] >= row["time"])]
        died = float(later.min()) if len(later) else np.inf
        last = row["attempt"] == run.attempts[row["req"]]
        mine = run.requests[row["req"]]
        if not last or (run.placed[row["req"]] < 0 and np.isfinite(died)):
            out[k] = died
        elif mine["status"] in ENDED:
            out[k] = mine["finish"] if np.isfinite(mine["finish"]) else row["time"]
    return out


def test_the_random_fleets_are_worth_it() -> None:
    """Among them are deaths under requests, resends, requests given up, several processes, chains, rejections and preemptions."""
    seen: set[str] = set()
    for seed in range(40):
        rng = Random(seed)
        w, engine, settings_ = traffic(rng), engine_of(rng), fleet_of(rng)
        run = run_and_check(w, engine, settings_)
        marks = {
            "sent again": run.attempts.any(),
            "given up": any("given up" in n for n in run.notes),
            "never sent": any("never sent" in n for n in run.notes),
            "processes": len(set(run.decisions["router"].tolist())) > 1,
            "chains": w.after is not None and (w.after >= 0).any(),
            "rejected": (run.requests["status"] == STATUS.index("rejected")).any(),
            "aborted": (run.requests["status"] == STATUS.index("aborted")).any(),
            "preempted": run.counters["preemptions"] > 0,
            "warmed": len(run.workload) > run.traffic,
            "grown": len(run.replicas) > settings_.replicas,
        }
        seen |= {name for name, here in marks.items() if here}
    assert seen == set(marks)


def test_who_is_aborted_before_it_comes_is_served() -> None:
    """As by a single engine, which knows no request of that name then."""
    requests = [request("early", 40, 5, arrive=1.0), request("late", 40, 5, arrive=5.0)]
    w = workload(requests, [{"at": 2.0, "op": "abort", "id": "late"}], time=SPEED)
    for replicas in (1, 2):
        assert replay_fleet(w, EngineSettings(), FleetSettings(replicas=replicas)).summary()["finished"] == 2
    assert replay(w, EngineSettings()).summary()["finished"] == 2


def test_the_next_turn_comes_in_its_time_though_no_turn_of_an_engine_is_left() -> None:
    """The answer ends the fleet's only work; what follows at once arrives there and then, not at the next moment of the outside world."""
    chain = [request("a", 40, 5, arrive=1.0), request("b", 40, 5, arrive=0.0, after="a"), request("c", 40, 5, arrive=9.0)]
    run = replay_fleet(workload(chain, time=SPEED), EngineSettings(), FleetSettings(replicas=2))
    ids = [run.workload.id(i) for i in range(3)]
    a, b = ids.index("a"), ids.index("b")
    assert run.requests["arrive"][b] == run.requests["scheduled"][b] == run.requests["finish"][a] < 9.0
    assert run.decisions["time"].tolist() == sorted(run.decisions["time"].tolist())
