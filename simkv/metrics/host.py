"""A run's host tier in figures: totals for reports, series for charts. Device and host are never added up in a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.events.folds.host import HostHistory
from simkv.metrics.rolling import Rolling, ratio

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Share of the tier's chunks that can be read: the largest, and the mean over simulated time."""

    largest: float
    mean: float


def occupancy(history: HostHistory, steps: npt.NDArray[np.void], chunks: int) -> Occupancy | None:
    """How full the tier was; ``None`` if there was no step or no room.

    Args:
        steps: STEP[s] of the same run.
        chunks: chunks the tier can hold.
    """
    if not len(steps) or chunks < 1:
        return None
    time = np.asarray(steps["time"], np.float64)
    lasts = np.diff(np.append(time, max(float(steps["end"][-1]), float(time[-1]))))
    share = history.held / chunks
    whole = float(lasts.sum())
    return Occupancy(float(share.max()), float(np.dot(share, lasts)) / whole if whole > 0 else float(share.mean()))


def host_series(history: HostHistory, rolling: Rolling, chunks: int, block_size: int, time: F8) -> dict[str, F8]:
    """Figures at moments from the first step on, each of the shape of ``time``; NaN where nothing was looked up.

    Args:
        rolling: of the same run; its window is the series'.
        chunks: chunks the tier can hold. ``block_size``: tokens of a device block.

    Returns:
        ``occupancy`` chunks that can be read ÷ chunks; over the window: ``device_hit_rate`` prompt tokens found on the device ÷
        looked up, ``host_hit_rate`` loaded from the host ÷ not found on the device; ``stored_per_s`` and ``removed_per_s``
        chunks, ``loaded_per_s`` blocks.
    """
    m = rolling.at(time)

    def sums(column: I8) -> I8:
        total = np.concatenate([[0], np.cumsum(column, dtype=np.int64)])
        return np.asarray(total[m.end] - total[m.first], np.int64)

    missed = rolling.sums("queries", m) - rolling.sums("hits", m)
    return {
        "occupancy": history.held[m.end - 1] / max(chunks, 1),
        "device_hit_rate": rolling.hit_rate(m),
        "host_hit_rate": ratio(sums(history.loading_first) * block_size, missed),
        "stored_per_s": rolling.per_time(sums(history.stored), m),
        "removed_per_s": rolling.per_time(sums(history.removed), m),
        "loaded_per_s": rolling.per_time(sums(history.loaded), m),
    }
