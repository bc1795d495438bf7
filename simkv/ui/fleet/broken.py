"""Decisions against locality as tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.diagnosis.locality import Locality
from simkv.replay_fleet import FleetRun
from simkv.ui import text


def columns(run: FleetRun, found: Locality, most: int) -> dict[str, list[Any]]:
    """The first ``most`` as columns."""
    rows = found.rows[:most]
    d = run.decisions[rows]
    seconds = run.workload.time_unit == "seconds"
    return {
        "time": [text.clock(t) if seconds else f"step {t:,.0f}" for t in d["time"].tolist()],
        "request": [run.workload.id(int(i)) for i in d["req"]],
        "prompt": run.workload.num_prompt[d["req"]].tolist(),
        "sent to": d["worker"].tolist(),
        "cached there": d["cached"].tolist(),
        "best": d["best_worker"].tolist(),
        "cached on it": d["best_cached"].tolist(),
        "lost": found.lost[:most].tolist(),
        "branch of the rule": [run.branches[int(b)] for b in d["branch"]],
    }


def scores(run: FleetRun, decision: int) -> dict[str, list[Any]]:
    """What the rule compared for one decision, per replica, and what it chose."""
    d, row = run.decisions[decision], run.scores[decision].astype(np.float64)
    mark = {int(d["worker"]): "sent here"}
    if d["best_worker"] >= 0 and d["best_worker"] != d["worker"]:
        mark[int(d["best_worker"])] = "held most"
    return {
        "replica": list(range(len(row))),
        "score": [v if v == v else None for v in row.tolist()],
        "": [mark.get(i, "") for i in range(len(row))],
    }
