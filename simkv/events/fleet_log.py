"""The one event log of a fleet: what every replica did, what every router decided, what was done to the replicas.

Each replica's events stand together (a fold follows one replica), in the columns of layout.py; ``order`` puts the turns
of all of them in the order of time. Decisions and operations are rows of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.events.log import EventLog

FORMAT = 1

DECISION = np.dtype(
    [
        ("time", "f8"),
        ("req", "i4"),
        ("router", "i2"),  # router process
        ("worker", "i2"),  # the replica it became
        ("branch", "u1"),  # which part of the rule decided: index into ``branches``
        ("attempt", "i4"),  # 0 the first time, then one more after each death of the request's replica
        ("matched", "i4"),  # units the router took for cached on the worker it chose by
        ("total", "i4"),  # units it compared
        ("inflight", "i4"),  # requests this router process had on the chosen worker before
        ("cached", "i4"),  # prompt tokens the chosen replica's cache really held; -1 unknown
        ("best_cached", "i4"),  # the most that any live replica's cache held; -1 unknown
        ("best_worker", "i2"),  # which one; -1 unknown
    ],
    align=True,
)
"""One routing decision; its scores are the row of the same number in ``scores``."""

OPERATION_KINDS = ("added", "removed", "draining", "failed", "restarting", "ready", "warmed")
OPERATION = np.dtype([("time", "f8"), ("kind", "u1"), ("replica", "i2")], align=True)
"""Something that happened to a replica."""
TURN = np.dtype([("time", "f8"), ("replica", "i2"), ("turn", "i4")], align=True)

PREFERS = {-1: "lower", 0: "neither", 1: "higher"}


class FleetLog:
    """Everything that happened in a fleet.

    Args:
        replicas: each replica's log, in order of number.
        decisions: ``DECISION[m]`` in order of time.
        scores: what the rule compared, shape ``[m, replicas]``; NaN where a replica was no candidate.
        operations: ``OPERATION[k]`` in order of time.
        branches: names of the parts of the rule.
        prefers: whether the rule takes the "lower" or "higher" score, or "neither".
    """

    def __init__(
        self,
        replicas: Sequence[EventLog],
        decisions: npt.NDArray[np.void],
        scores: npt.NDArray[np.float32],
        operations: npt.NDArray[np.void],
        branches: Sequence[str],
        prefers: str,
    ) -> None:
        self.replicas, self.decisions, self.scores, self.operations = list(replicas), decisions, scores, operations
        self.branches, self.prefers = tuple(branches), prefers

    def __len__(self) -> int:
        return sum(len(log) for log in self.replicas) + len(self.decisions) + len(self.operations)

    def order(self) -> npt.NDArray[np.void]:
        """``TURN[t]``: the turns of all replicas in order of time (ties: lower replica first)."""
        parts = []
        for i, log in enumerate(self.replicas):
            rows = np.zeros(len(log.steps), TURN)
            rows["time"], rows["replica"], rows["turn"] = log.steps["time"], i, np.arange(len(log.steps))
            parts.append(rows)
        turns = np.concatenate(parts) if parts else np.zeros(0, TURN)
        return turns[np.lexsort((turns["turn"], turns["replica"], turns["time"]))]

    def save(self, folder: Path) -> None:
        """Write every part into ``folder`` (made if missing); nothing is pickled."""
        folder.mkdir(parents=True, exist_ok=True)
        for i, log in enumerate(self.replicas):
            log.save(folder / f"replica-{i}")
        for name in ("decisions", "scores", "operations"):
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        about = {"format": FORMAT, "replicas": len(self.replicas), "branches": self.branches, "prefers": self.prefers}
        (folder / "fleet.json").write_text(json.dumps(about, indent=1))

    @classmethod
    def load(cls, folder: Path) -> FleetLog:
        """Read what ``save`` wrote; columns are memory-mapped.

        Raises:
            InputError: a part is missing, damaged, or of another format.
        """
        try:
            about = json.loads((folder / "fleet.json").read_text())
            if about.get("format") != FORMAT:
                raise InputError("the fleet's log has another format", file=str(folder), expected=f"format {FORMAT}")
            parts = {n: np.load(folder / f"{n}.npy", mmap_mode="r", allow_pickle=False) for n in ("decisions", "scores", "operations")}
            count, branches, prefers = int(about["replicas"]), tuple(map(str, about["branches"])), str(about["prefers"])
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as problem:
            raise InputError(
                f"no readable fleet log ({problem})", file=str(folder), hint="Make one with `simkv replay SOURCE --replicas N --out DIR`"
            ) from problem
        if parts["decisions"].dtype != DECISION or parts["operations"].dtype != OPERATION:
            raise InputError("the fleet log's columns have other fields", file=str(folder), hint="Run the replay again")
        return cls([EventLog.load(folder / f"replica-{i}") for i in range(count)], branches=branches, prefers=prefers, **parts)
