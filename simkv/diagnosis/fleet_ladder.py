"""The ladder of a fleet's run: routing, restarts and the engines each take their part of the reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.ladder import Ladder, ladder
from simkv.events.fleet_log import OPERATION_KINDS

if TYPE_CHECKING:
    from simkv.replay_fleet import FleetRun

DEATHS = [OPERATION_KINDS.index(kind) for kind in ("failed", "restarting")]


def ladder_of_fleet(run: FleetRun) -> Ladder:
    """Where the reuse of the traffic went. Warming requests take part: what they compute is found by others."""
    placed, scheduled = run.placed, run.requests["scheduled"]
    granularity = max(int(r.resolved.scheduler_block_size) for r in run.replicas)
    return ladder(run.workload, granularity, placed, run.requests["hit"], admitted=scheduled, life=lives(run))


def lives(run: FleetRun) -> npt.NDArray[np.int64]:
    """How often the replica of each request had started anew when the request was admitted, shape ``[n]``."""
    placed, scheduled = run.placed, run.requests["scheduled"]
    life = np.zeros(len(placed), np.int64)
    deaths = run.operations[np.isin(run.operations["kind"], DEATHS)]
    for replica in np.unique(deaths["replica"]).tolist():
        times = np.sort(deaths["time"][deaths["replica"] == replica])
        mine = placed == replica
        life[mine] = np.searchsorted(times, scheduled[mine], side="right")
    return life
