"""Many replicas, advanced together: what the simulated fleet calls between two moments of its outside world."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import DONE, SCHEDULED, UNTIL, Engine


class ReplicaTable:
    """Replicas of any engines by slot.

    Args:
        engines: one per slot; ``None`` where no replica lives.
    """

    def __init__(self, engines: Sequence[Engine | None]) -> None:
        self.engines = list(engines)
        self.reasons: npt.NDArray[np.int64] = np.array([DONE if x is None else UNTIL for x in engines], np.int64)

    def replace(self, slot: int, engine: Engine | None) -> None:
        """Another engine in a slot (restarted), one in the slot behind the last (added), or none (gone)."""
        if slot == len(self.engines):
            self.engines.append(None)
            self.reasons = np.append(self.reasons, np.int64(DONE))
        self.engines[slot] = engine
        self.reasons[slot] = DONE if engine is None else UNTIL

    def advance(self, until: float, only: Sequence[int] | None = None) -> None:
        """All turns that begin at or before ``until`` (seconds, or steps in step mode); ``reasons`` says where each stands.

        Args:
            only: the slots to advance; default: all.
        """
        for slot in range(len(self.engines)) if only is None else only:
            engine = self.engines[slot]
            if engine is not None:
                self.reasons[slot] = engine.advance(until)

    def step_first(self, until: float) -> int | None:
        """One turn of the replica whose next turn begins earliest, the first of equals.

        Returns:
            Its slot; ``None`` if no turn begins at or before ``until``.
        """
        first, earliest = None, until
        for slot, engine in enumerate(self.engines):
            if engine is None:
                continue
            self.reasons[slot] = engine.advance(-np.inf)
            begins = float(engine.counters.next_turn)
            if self.reasons[slot] == UNTIL and (begins < earliest or (first is None and begins == earliest)):
                first, earliest = slot, begins
        if first is not None:
            engine = self.engines[first]
            assert engine is not None
            self.reasons[first] = engine.advance(until, pause=True)
            if self.reasons[first] == SCHEDULED:
                engine.advance(until, pause=True)
                self.reasons[first] = UNTIL
        return first

    def earliest(self) -> float:
        """When the next turn of any replica begins; infinity if none has one to come."""
        first = np.inf
        for slot, engine in enumerate(self.engines):
            if engine is not None:
                self.reasons[slot] = engine.advance(-np.inf)
                if self.reasons[slot] == UNTIL:
                    first = min(first, float(engine.counters.next_turn))
        return first
