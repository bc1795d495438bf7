"""Routing decisions against the caches as they really were: where locality was broken, and what the router believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.replay_fleet import FleetRun
from simkv.ui import text

I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Broken:
    """Decisions where another live replica held more of the prompt, the most tokens lost first.

    Args:
        rows: indices into the run's decisions.
        lost: tokens more that the best replica held, same length.
        known: decisions of which the truth is known.
        believed, held: over decisions whose rule matches prompts, the share of the prompt that the router took for cached on
            the replica it chose, and that really was; NaN unknown, shape ``[decisions]``.
    """

    rows: I8
    lost: I8
    known: int
    believed: npt.NDArray[np.float64]
    held: npt.NDArray[np.float64]

    @property
    def tokens(self) -> int:
        """Tokens lost over all of them."""
        return int(self.lost.sum())


def broken(run: FleetRun) -> Broken:
    """Find them."""
    d = run.decisions
    lost = d["best_cached"].astype(np.int64) - d["cached"]
    known = (d["cached"] >= 0) & (d["best_cached"] >= 0)
    rows = np.flatnonzero(known & (lost > 0))
    rows = rows[np.argsort(-lost[rows], kind="stable")]
    believed, held = np.full(len(d), np.nan), np.full(len(d), np.nan)
    matched = (d["total"] > 0) & known
    believed[matched] = d["matched"][matched] / d["total"][matched]
    held[matched] = d["cached"][matched] / np.maximum(run.workload.num_prompt[d["req"][matched]], 1)
    return Broken(rows, lost[rows], int(known.sum()), believed, held)


def columns(run: FleetRun, found: Broken, most: int) -> dict[str, list[Any]]:
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
        "in flight there": d["inflight"].tolist(),
    }


def scores(run: FleetRun, decision: int) -> dict[str, list[Any]]:
    """What the rule compared for one decision, per replica, and what it chose."""
    d, row = run.decisions[decision], run.scores[decision].astype(np.float64)
    mark = {int(d["worker"]): "sent here"}
    if d["best_worker"] >= 0 and d["best_worker"] != d["worker"]:
        mark[int(d["best_worker"])] = "held most of the prompt"
    return {
        "replica": list(range(len(row))),
        "score": [v if v == v else None for v in row.tolist()],
        "": [mark.get(i, "") for i in range(len(row))],
    }
