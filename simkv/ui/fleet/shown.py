"""A finished fleet run with everything the page draws from it. Nothing here calls Streamlit."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from simkv.diagnosis.fleet_ladder import ladder_of_fleet
from simkv.diagnosis.ladder import Ladder
from simkv.diagnosis.locality import Locality, locality
from simkv.diagnosis.prefix_groups import PrefixGroups, prefix_groups
from simkv.metrics.fleet import FleetSeries, Stretch, absences, busiest, fleet_series
from simkv.replay_fleet import FleetRun
from simkv.ui.config import Config
from simkv.ui.shown import Shown, fold

KEPT_REPLICAS = 3
"""Block maps kept at once; each holds a history of its own."""
FEWEST_BINS, MOST_BINS = 24, 120


@dataclass(eq=False)
class FleetShown:
    """What the page shows of one fleet run.

    Args:
        config: what was asked.
        run: what came out.
        blobs: what browsers got of it, by the part of the page.
        columns: the table of replicas, once it was made.
    """

    config: Config
    run: FleetRun
    blobs: dict[str, bytes] = field(default_factory=dict, repr=False)
    columns: dict[str, list[Any]] = field(default_factory=dict, repr=False)
    _replicas: OrderedDict[int, Shown] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def digest(self) -> str:
        """Identity of the run."""
        return self.config.digest

    @property
    def replicas(self) -> int:
        """Replicas there ever were."""
        return len(self.run.replicas)

    @property
    def time_unit(self) -> str:
        """``seconds`` or ``steps``."""
        return self.run.workload.time_unit

    @cached_property
    def nbytes(self) -> int:
        """Memory the run holds, near enough for the store's bound."""
        runs = [self.run.replica(i) for i in range(self.replicas)]
        tables = [a for r in runs for a in (r.turns.rows, r.turns.ticks, r.gaps)]
        logs = [a for r in runs if r.log for a in (r.log.rows, r.log.blocks, r.log.keys)]
        return sum(int(a.nbytes) for a in (*tables, *logs)) + 2 * self.replicas * int(self.run.requests.nbytes)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The command line's figures."""
        return self.run.summary()

    @cached_property
    def ladder(self) -> Ladder:
        """From what the workload shares to what the engines delivered."""
        return ladder_of_fleet(self.run)

    @cached_property
    def series(self) -> FleetSeries:
        """Figures over time."""
        return fleet_series(self.run, min(MOST_BINS, max(FEWEST_BINS, self.run.traffic // self.replicas)))

    @cached_property
    def stretches(self) -> list[Stretch]:
        """When replicas were not simply there."""
        return absences(self.run)

    @cached_property
    def groups(self) -> PrefixGroups:
        """Where each prefix lives."""
        return prefix_groups(self.run.workload, self.ladder, self.run.placed, self.replicas)

    @cached_property
    def locality(self) -> Locality:
        """Decisions that sent a request away from its prefix."""
        return locality(self.run)

    @cached_property
    def busiest(self) -> tuple[int, float]:
        """The busiest replica and how far above the mean it is."""
        return busiest(self.run)

    def replica(self, i: int) -> Shown:
        """One replica as the page shows single runs; its block map is folded when it is first asked for."""
        with self._lock:
            if i not in self._replicas:
                mine = np.flatnonzero(self.run.placed == i)
                asked = int(self.ladder.of_queries[mine].sum())
                best = int(self.ladder.of_kept[mine].sum()) / asked if asked and self.ladder.has_content else math.nan
                shown = fold(Shown(self.config, self.run.replica(i), ceiling=best, part=f".{i}", only=mine))
                self._replicas[i] = shown
                if len(self._replicas) > KEPT_REPLICAS:
                    self._replicas.popitem(last=False)
            self._replicas.move_to_end(i)
            return self._replicas[i]
