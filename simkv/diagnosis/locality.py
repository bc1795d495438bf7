"""Routing decisions against the caches as they really were: where locality was broken, and what the router believed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.replay_fleet import FleetRun

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Locality:
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
    believed: F8
    held: F8

    @property
    def tokens(self) -> int:
        """Tokens lost over all of them."""
        return int(self.lost.sum())


def locality(run: FleetRun) -> Locality:
    """Judge every decision of a fleet's run."""
    d = run.decisions
    lost = d["best_cached"].astype(np.int64) - d["cached"]
    known = (d["cached"] >= 0) & (d["best_cached"] >= 0)
    rows = np.flatnonzero(known & (lost > 0))
    rows = rows[np.argsort(-lost[rows], kind="stable")]
    believed, held = np.full(len(d), np.nan), np.full(len(d), np.nan)
    matched = (d["total"] > 0) & known
    believed[matched] = d["matched"][matched] / d["total"][matched]
    held[matched] = d["cached"][matched] / np.maximum(run.workload.num_prompt[d["req"][matched]], 1)
    return Locality(rows, lost[rows], int(known.sum()), believed, held)
