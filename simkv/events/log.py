"""The event log of a run: columns, saved and loaded without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.events.layout import EVENT, STEP, TICK
from simkv.events.packed import IN_RUNS, pack, spread
from simkv.events.turns import Turns

FORMAT = 3
COLUMNS = ("rows", "blocks", "keys", "steps", "ticks")


class EventLog:
    """Everything that happened, in order (see layout.py for the columns).

    Args:
        rows, blocks: the events, packed (simkv/events/packed.py).
        keys: ``u8[k]``, one per STORED, STORED_EXTRA and HOST_STORED event, in order.
        turns: when what happened, packed (simkv/events/turns.py).
        header: what a fold must know of the engine (blocks, groups, block sizes).
    """

    def __init__(
        self,
        rows: npt.NDArray[np.void],
        blocks: npt.NDArray[np.int32],
        keys: npt.NDArray[np.uint64],
        turns: Turns,
        header: Mapping[str, Any],
    ) -> None:
        self.rows, self.blocks, self.keys, self.turns, self.header = rows, blocks, keys, turns, header

    @classmethod
    def of_events(
        cls, events: npt.NDArray[np.void], keys: npt.NDArray[np.uint64], steps: npt.NDArray[np.void], header: Mapping[str, Any]
    ) -> EventLog:
        """A log from one row per event and one per turn."""
        return cls(*pack(events), keys, Turns(steps), header)

    @cached_property
    def events(self) -> npt.NDArray[np.void]:
        """``EVENT[m]``, one row per event; made when first asked for."""
        return spread(self.rows, self.blocks)

    @property
    def steps(self) -> npt.NDArray[np.void]:
        """``STEP[t]``, one row per turn; the events of turn ``i`` are ``events[steps[i].first_event : steps[i+1].first_event]``."""
        return self.turns.steps

    def __len__(self) -> int:
        if "events" in self.__dict__:
            return len(self.events)
        return len(self.blocks) + int(np.count_nonzero(~IN_RUNS[self.rows["kind"]]))

    def turn_slice(self, turn: int) -> slice:
        """Events of one turn."""
        first = int(self.steps["first_event"][turn])
        last = int(self.steps["first_event"][turn + 1]) if turn + 1 < len(self.steps) else len(self)
        return slice(first, last)

    def save(self, folder: Path) -> None:
        """Write a ``.npy`` file for each column and ``log.json`` into ``folder`` (made if missing)."""
        folder.mkdir(parents=True, exist_ok=True)
        columns: tuple[npt.NDArray[Any], ...] = (self.rows, self.blocks, self.keys, self.turns.rows, self.turns.ticks)
        for name, column in zip(COLUMNS, columns, strict=True):
            np.save(folder / f"{name}.npy", column, allow_pickle=False)
        (folder / "log.json").write_text(json.dumps({"format": FORMAT, "events": len(self), **self.header}, indent=1))

    @classmethod
    def load(cls, folder: Path) -> EventLog:
        """Read what ``save`` wrote; columns are memory-mapped.

        Raises:
            InputError: a file is missing, damaged, or of another format.
        """
        try:
            header = json.loads((folder / "log.json").read_text())
            found = header.pop("format", None)
            if found != FORMAT:
                raise InputError(
                    f"the event log has format {found}", file=str(folder), expected=f"format {FORMAT}", hint="Run the replay again"
                )
            events = int(header.pop("events"))
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in COLUMNS}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
            raise InputError(
                f"no readable event log ({problem})", file=str(folder), hint="Make one with `simkv replay SOURCE --events --out DIR`"
            ) from problem
        if [arrays[name].dtype for name in ("rows", "steps", "ticks")] != [EVENT, STEP, TICK]:
            raise InputError("the event log's columns have other fields", file=str(folder), hint="Run the replay again")
        return cls(arrays["rows"], arrays["blocks"], arrays["keys"], Turns(arrays["steps"], arrays["ticks"], events), header)
