"""Many replicas, advanced together: what the simulated fleet calls between two moments of its outside world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import DONE, GROW, UNTIL
from simkv.engine.native import address_of, bind
from simkv.fleet.turns import AGAIN, NOBODY, PLACE, WATCHED, advance_all, ask_all, take_turns


class ReplicaTable:
    """Replicas of any engines by slot.

    A replica that is not due is not called at all. Who gives one work counts it in its ``timers`` (as ``Replicas.send`` does),
    replaces its ``state``, or calls ``replace``.

    Args:
        engines: one per slot; ``None`` where no replica lives.
    """

    def __init__(self, engines: Sequence[Any | None]) -> None:
        self.engines: list[Any | None] = [None] * len(engines)
        self._bound: list[tuple[Any, Any]] = [(None, None)] * len(engines)
        self._places: Any = np.zeros(len(engines), PLACE).view(np.recarray)
        self._places["reason"] = DONE
        for slot, engine in enumerate(engines):
            self.replace(slot, engine)

    @property
    def reasons(self) -> npt.NDArray[np.int64]:
        """Why each replica stopped last (simkv/engine/contract.py), shape ``[slots]``; DONE where none lives."""
        found: npt.NDArray[np.int64] = np.asarray(self._places["reason"])
        return found

    def replace(self, slot: int, engine: Any | None) -> None:
        """Another engine in a slot (restarted), one in the slot behind the last (added), or none (gone)."""
        if slot == len(self.engines):
            self.engines.append(None)
            self._bound.append((None, None))
            self._places = np.concatenate([self._places, np.zeros(1, PLACE)]).view(np.recarray)
        self.engines[slot] = engine
        self._places[slot] = np.zeros((), PLACE)
        if engine is None:
            self._bound[slot] = (None, None)
            self._places[slot].reason = DONE
        else:
            self._bind(slot, engine)

    def _bind(self, slot: int, engine: Any) -> None:
        """Look up where the engine's arrays lie; they move when it grows."""
        code, image = bind(engine)
        self._bound[slot] = (engine.state, image)
        p, counters = self._places[slot], address_of(np.frombuffer(engine.counters, np.uint8))
        p.code, p.image = code, address_of(image)
        for name in WATCHED:
            p[name] = counters + engine.counters.dtype.fields[name][1]
        p.known, p.reason = -1, UNTIL

    def _bind_moved(self) -> None:
        for slot, (engine, (state, _)) in enumerate(zip(self.engines, self._bound, strict=True)):
            if engine is not None and engine.state is not state:
                self._bind(slot, engine)

    def _help(self, slot: int) -> None:
        """What compiled code cannot do for a replica: give it longer logs, or raise what its engine raises."""
        engine: Any = self.engines[slot]
        if engine.checked(int(self._places[slot].reason)) == GROW:
            engine.grow()
        self._bind(slot, engine)

    def advance(self, until: float, only: Sequence[int] | None = None) -> None:
        """All turns that begin at or before ``until`` (seconds, or steps in step mode); ``reasons`` says where each stands.

        Args:
            only: the slots to advance; default: all.
        """
        self._bind_moved()
        spans = ((0, len(self.engines)),) if only is None else tuple((slot, slot + 1) for slot in only)
        for first, last in spans:
            slot = advance_all(self._places, first, last, until)
            while slot != NOBODY:
                self._help(slot)
                slot = advance_all(self._places, slot, last, until)

    def step_first(self, until: float) -> int | None:
        """One turn of the replica whose next turn begins earliest, the first of equals.

        Returns:
            Its slot; ``None`` if no turn begins at or before ``until``.
        """
        return self._take_turns(until, to_an_end=False)

    def run_to_an_end(self, until: float) -> int | None:
        """Turns in order of the time they begin, up to and with the first in which a request ends.

        Returns:
            The slot that took the last one; ``None`` if no turn begins at or before ``until``.
        """
        return self._take_turns(until, to_an_end=True)

    def _take_turns(self, until: float, to_an_end: bool) -> int | None:
        self.earliest()
        slot = take_turns(self._places, until, to_an_end)
        while slot <= AGAIN:
            self._help(AGAIN - slot)
            self.earliest()
            slot = take_turns(self._places, until, to_an_end)
        return None if slot == NOBODY else int(slot)

    def earliest(self) -> float:
        """When the next turn of any replica begins; infinity if none has one to come."""
        self._bind_moved()
        return float(ask_all(self._places))
