"""Actions of our own format: aborts and cache resets, by time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.workload.golden_check import check_action
from simkv.workload.rows import Row, Tally, Where
from simkv.workload.workload import ABORT, ACTION, RESET, RESET_CONNECTOR, RESET_RUNNING


def read_actions(rows: list[tuple[int | None, Row]], place: dict[str, int], name: str, tally: Tally) -> npt.NDArray[np.void]:
    """Actions by time, ties in order of the file. An abort of an unknown id stays, as request -1: it has no effect, but it happens."""
    out = []
    for i, (line, row) in enumerate(rows):
        check_action(row, i, Where(name, line))
        if row["op"] == "reset_prefix_cache":
            op = RESET_RUNNING if row.get("reset_running_requests") else RESET
            out.append((row["at"], -1, op | (RESET_CONNECTOR if row.get("reset_connector") else 0)))
            continue
        if place.get(row["id"], -1) < 0:
            tally.notes.append(f'The abort of "{row["id"][:40]}" names no request of this workload and has no effect.')
        out.append((row["at"], place.get(row["id"], -1), ABORT))
    return np.array(sorted(out, key=lambda a: a[0]), ACTION)
