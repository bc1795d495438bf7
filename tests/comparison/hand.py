"""Two runs of hand-made traffic whose difference has one known cause."""

from __future__ import annotations

from typing import Any

from simkv.comparison import Comparison, choices, compare
from simkv.workload.workload import Workload
from tests.engine.hand import VIRTUAL, request, shared, workload

__all__ = ["VIRTUAL", "compared", "request", "shared", "traffic"]


def traffic(requests: list[dict[str, Any]], actions: list[dict[str, Any]] | None = None, time: Any = None, **config: Any) -> Workload:
    """Requests in seconds, a step always 10 ms, block size 4, 100 blocks."""
    return workload(requests, actions, time or VIRTUAL, **config)


def compared(w: Workload, *texts: str) -> Comparison:
    """The workload under each of the settings."""
    return compare(w, choices(texts, w))
