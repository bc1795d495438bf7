"""The parts of ``make bench`` that measure the replay inside one process; returns as in whole.py."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simkv.bench.whole import Section
from simkv.conformance import run_conformance
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_workload
from simkv.workload.transform import limit, repeat
from simkv.workload.workload import Workload

RECORDED = {
    "requests": 2000,
    "finished": 2000,
    "steps": 1820,
    "scheduled_tokens": 1_886_663,
    "queries": 4_181_572,
    "hits": 2_687_504,
    "stored_blocks": 117_000,
    "removed_blocks": 93_002,
    "preemptions": 0,
}
"""What the real vLLM 0.32.0 scheduler did with the recorded workload."""
RECORDED_END_S = 152.89052


NOT_COMPARED = ("bench", "vllm_v0")
"""Folders of recordings that have no log to compare with, or one that only the tests read."""


def exactness() -> Section:
    """Recorded runs, replayed and compared."""
    folder = folder_of_recordings()
    if folder is None:
        return "Exactness", ["No recordings beside this installation."], True
    lines, right = ["| recorded runs | exact |", "| --- | ---: |"], True
    for name in sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in (*NOT_COMPARED, "__pycache__")):
        results = [r for r in run_conformance(name) if not r.reported]
        exact = sum(r.exact for r in results)
        right &= exact == len(results)
        lines.append(f"| tests/golden/{name.name} | {exact} of {len(results)} |")
    return "Exactness", lines, right


def recorded_workload() -> Section:
    """The workload whose totals the real scheduler fixed: speed without and with the event log, and loading."""
    folder = folder_of_recordings()
    path = None if folder is None else folder / "bench" / "bench.input.json.gz"
    if path is None or not path.exists():
        return "Recorded workload", ["Not beside this installation."], True
    load = statistics.median(_timed(lambda: read_workload(path))[0] for _ in range(5))
    workload = read_workload(path)
    off, on, run = _interleaved(workload, EngineSettings(), 7)
    summary = run.summary()
    right = {k: summary[k] for k in RECORDED} == RECORDED and abs(summary["end_time_s"] - RECORDED_END_S) < 5e-6
    n, steps = len(workload), int(summary["steps"])
    return (
        "Recorded workload: 2,000 requests, 117,000 blocks, one core",
        [
            "| | seconds | requests/s | steps/s |",
            "| --- | ---: | ---: | ---: |",
            f"| replay, event log off | {off:.4f} | {n / off:,.0f} | {steps / off:,.0f} |",
            f"| replay, event log on | {on:.4f} | {n / on:,.0f} | {steps / on:,.0f} |",
            f"| loading (JSON and arrays) | {load:.4f} | {n / load:,.0f} | |",
            "",
            f"With the event log {off / on:.0%} of the speed; loading takes {load / off:.0%} of a replay."
            f" Totals {'equal those of' if right else '**differ from**'} the real scheduler's run.",
        ],
        right,
    )


def linearity() -> Section:
    """The trace ten times over, cut at several lengths."""
    workload = repeat(read_workload(bundled()["mooncake_conversation"]), 10)
    settings = EngineSettings(block_size=512, num_gpu_blocks=8192)
    lines, right = ["| requests | seconds | microseconds per request |", "| ---: | ---: | ---: |"], True
    for count in (1_000, 3_000, 10_000, 30_000, 60_000, len(workload)):
        part = limit(workload, count)
        gc.collect()
        wall, run = _timed(lambda part=part: replay(part, settings, events=False))  # type: ignore[misc]
        right &= run.summary()["finished"] == count
        lines.append(f"| {count:,} | {wall:.3f} | {1e6 * wall / count:.1f} |")
    return "From 1,000 to 120,000 requests, replay only", lines, right


def pool_size() -> Section:
    """Cost against the size of the pool, per block used: a bigger pool stores less and hits more."""
    workload = limit(read_workload(bundled()["mooncake_conversation"]), 3_000)
    lines, right = (
        ["| blocks | seconds | blocks used (stored or hit) | ns per block used | hit rate |", "| ---: | ---: | ---: | ---: | ---: |"],
        True,
    )
    for blocks in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        settings = EngineSettings(block_size=16, num_gpu_blocks=blocks, max_num_seqs=64)
        wall, run = min((_timed(lambda s=settings: replay(workload, s, events=False)) for _ in range(3)), key=lambda x: x[0])  # type: ignore[misc]
        s = run.summary()
        right &= s["finished"] == len(workload)
        used = int(s["stored_blocks"]) + int(s["hits"]) // settings.block_size
        lines.append(f"| {blocks:,} | {wall:.3f} | {used:,} | {1e9 * wall / used:.0f} | {s['hit_rate']:.2%} |")
    return "3,000 requests of the same trace, block size 16, pools of 10^4 to 10^6 blocks", lines, right


SECTIONS: tuple[Callable[[], Section], ...] = (exactness, recorded_workload, linearity, pool_size)


def folder_of_recordings() -> Path | None:
    """The recorded runs of a checkout; an installed package has none."""
    folder = Path(__file__).resolve().parents[2] / "tests" / "golden"
    return folder if folder.is_dir() else None


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _interleaved(workload: Workload, settings: EngineSettings, times: int) -> tuple[float, float, Run]:
    """Median seconds without and with the event log, measured in turn, and the last run without."""
    off, on = [], []
    for _ in range(times):
        gc.collect()
        wall, run = _timed(lambda: replay(workload, settings, events=False))
        off.append(wall)
        gc.collect()
        on.append(_timed(lambda: replay(workload, settings, events=True))[0])
    return statistics.median(off), statistics.median(on), run
