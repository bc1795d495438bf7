"""Speed of one workload: one load and one replay to warm up, then the median of several."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from simkv.errors import EngineError
from simkv.replay import replay
from simkv.settings import Settings
from simkv.workload.workload import Workload

TOTALS = ("requests", "finished", "steps", "scheduled_tokens", "queries", "hits", "stored_blocks", "removed_blocks", "preemptions")


def measure(
    load: Callable[[], Workload], settings: Settings | Callable[[Workload], Settings], *, repeat: int = 5, events: bool = False
) -> dict[str, Any]:
    """Time ``repeat`` replays of what ``load`` returns, under settings that may depend on it.

    Returns:
        ``requests_per_s`` and ``steps_per_s`` (from the median wall time), ``wall_s`` and ``cpu_s`` of one replay
        (medians), ``all_wall_s``, ``load_s`` (median; ``first_load_s`` with what it imports), ``compile_s``, ``totals`` and ``end_time_s``.

    Raises:
        EngineError: two replays did not end with the same totals.
    """
    loads = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        workload = load()
        loads.append(time.perf_counter() - started)
    if not isinstance(settings, Settings):
        settings = settings(workload)
    first = replay(workload, settings, events=events)
    summary = first.summary()
    totals = {name: summary[name] for name in TOTALS}
    compile_s = first.compile_s
    del first
    wall, cpu = [], []
    for _ in range(repeat):
        gc.collect()
        cpu_start, start = time.process_time(), time.perf_counter()
        run = replay(workload, settings, events=events)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
        again = run.summary()
        if {name: again[name] for name in TOTALS} != totals:
            raise EngineError("two replays of the same workload ended with different totals")
        del run
    median = statistics.median(wall)
    return {
        "requests_per_s": totals["requests"] / median,
        "steps_per_s": totals["steps"] / median,
        "wall_s": median,
        "cpu_s": statistics.median(cpu),
        "all_wall_s": wall,
        "load_s": statistics.median(loads[1:]),
        "first_load_s": loads[0],
        "compile_s": compile_s,
        "events": events,
        "totals": totals,
        "end_time_s": summary["end_time_s"],
    }
