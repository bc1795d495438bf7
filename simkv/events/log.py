"""The event log of a run: columns, saved and loaded without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.events.layout import EVENT, STEP

FORMAT = 1


@dataclass(frozen=True, eq=False)
class EventLog:
    """Everything that happened, in order (see layout.py for the columns).

    Args:
        events: ``EVENT[m]``.
        keys: ``u8[k]``, one per STORED and STORED_EXTRA row, in order.
        steps: ``STEP[s]``; the events of turn ``i`` are ``events[steps[i].first_event : steps[i+1].first_event]``.
        header: what a fold must know of the engine (blocks, groups, block sizes).
    """

    events: npt.NDArray[np.void]
    keys: npt.NDArray[np.uint64]
    steps: npt.NDArray[np.void]
    header: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.events)

    def turn_slice(self, turn: int) -> slice:
        """Rows of one turn."""
        first = int(self.steps["first_event"][turn])
        last = int(self.steps["first_event"][turn + 1]) if turn + 1 < len(self.steps) else len(self.events)
        return slice(first, last)

    def save(self, folder: Path) -> None:
        """Write ``events.npy``, ``keys.npy``, ``steps.npy`` and ``log.json`` into ``folder`` (made if missing)."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("events", "keys", "steps"):
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        (folder / "log.json").write_text(json.dumps({"format": FORMAT, **self.header}, indent=1))

    @classmethod
    def load(cls, folder: Path) -> EventLog:
        """Read what ``save`` wrote; columns are memory-mapped.

        Raises:
            InputError: a file is missing, damaged, or of another format.
        """
        try:
            header = json.loads((folder / "log.json").read_text())
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("events", "keys", "steps")}
        except (OSError, ValueError) as problem:
            raise InputError(
                f"no readable event log ({problem})", file=str(folder), hint="Make one with `simkv replay SOURCE --events --out DIR`"
            ) from problem
        if header.pop("format", None) != FORMAT or arrays["events"].dtype != EVENT or arrays["steps"].dtype != STEP:
            raise InputError("the event log has another format", file=str(folder), expected=f"format {FORMAT}", hint="Run the replay again")
        return cls(header=header, **arrays)
