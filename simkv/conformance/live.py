"""Recordings of a running vLLM server: cached tokens of every request and the server's own counters.

Requests sent one after another leave no room for timing, so they must come out exactly. A closed loop of several users
does: which request meets which depends on the server's speed, so there the difference in hit rate over time is
reported, with requests arriving when they were really sent and a step time fitted to the recorded durations.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from simkv.conformance.result import Comparison, RunResult
from simkv.engine.step_time import StepTime, linear, step_index
from simkv.replay import Run, replay
from simkv.workload.registry import read_workload
from simkv.workload.workload import Workload

HEAD = 1 << 16
WINDOWS = 9
COUNTERS = {
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prompt_tokens_total": "queries",
    "vllm:prompt_tokens_cached_total": "hits",
}


def check_live(path: Path) -> Callable[[], RunResult] | None:
    """A check of this recording, or ``None`` if the file is not one."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            head = stream.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return None
    if b'"mode"' not in head or b'"server"' not in head:
        return None
    return lambda: _check(path, opener)


def _check(path: Path, opener: Any) -> RunResult:
    with opener(path, "rt", encoding="utf-8") as stream:
        recording = json.load(stream)
    workload = read_workload(path)
    name = path.name.split(".")[0]
    if recording["mode"] == "sequential":
        return _sequential(name, workload, recording)
    return _closed_loop(name, workload, recording)


def _recorded(workload: Workload, recording: dict[str, Any], field: str) -> np.ndarray:
    by_id = {str(r["i"]): r[field] for r in recording["results"]}
    return np.array([by_id[workload.id(i)] for i in range(len(workload))])


def _sequential(name: str, workload: Workload, recording: dict[str, Any]) -> RunResult:
    run = replay(workload, step_time=step_index(), events=False)
    compare = Comparison(name)
    for i, (cached, got) in enumerate(
        zip(_recorded(workload, recording, "cached_tokens").tolist(), run.requests["hit"].tolist(), strict=True)
    ):
        compare.equal(None, f"cached_tokens of request {workload.id(i)}", cached, got)
    compare.equal(None, "requests finished", len(workload), run.counters["finished"])
    before, after = recording.get("counters_before", {}), recording.get("counters_after", {})
    for series, value in after.items():
        metric = series.split("{")[0]
        if metric in COUNTERS:
            compare.equal(None, metric, int(value - before.get(series, 0)), run.counters[COUNTERS[metric]])
        elif metric == "vllm:generation_tokens_total":
            compare.equal(None, metric, int(value - before.get(series, 0)), int(run.requests["generated"].sum()))
        elif 'source="local_compute"' in series:
            compare.equal(None, metric, int(value - before.get(series, 0)), run.counters["queries"] - run.counters["hits"])
        elif 'source="local_cache_hit"' in series or 'source="device"' in series:
            compare.equal(None, metric, int(value - before.get(series, 0)), run.counters["hits"])
    return compare.result(f"{len(workload)} requests one after another")


def fitted_step_time(workload: Workload, cached: np.ndarray, duration: np.ndarray) -> StepTime:
    """Seconds per step and per computed prompt token that best explain the recorded durations (least squares)."""
    work = np.stack([workload.num_output.astype(float), workload.num_prompt - cached.astype(float)], axis=1)
    per_step, per_token = np.linalg.lstsq(work, duration, rcond=None)[0]
    return linear(max(float(per_step), 1e-6), max(float(per_token), 0.0), 0.0)


def _closed_loop(name: str, workload: Workload, recording: dict[str, Any]) -> RunResult:
    cached = _recorded(workload, recording, "cached_tokens")
    duration = _recorded(workload, recording, "done") - _recorded(workload, recording, "sent")
    run = replay(workload, step_time=fitted_step_time(workload, cached, duration), events=False)
    windows = _windows(workload, cached, run)
    whole = float(run.requests["hit"].sum() / workload.num_prompt.sum()) - float(cached.sum() / workload.num_prompt.sum())
    worst = max(abs(w["difference"]) for w in windows)
    note = (
        f"{recording['mode']}: hit rate {100 * whole:+.2f} points over the whole run, at most {100 * worst:.2f} points off in any of"
        f" {len(windows)} windows; {int(np.count_nonzero(run.requests['hit'] == cached))} of {len(workload)} requests equal"
    )
    return RunResult(name, False, len(workload), None, note, {"windows": windows, "difference": whole}, reported=True)


def _windows(workload: Workload, cached: np.ndarray, run: Run) -> list[dict[str, Any]]:
    """Hit rate (tokens, hits / prompt tokens) of successive ninths of the requests."""
    out = []
    for part in np.array_split(np.arange(len(workload)), WINDOWS):
        prompt = int(workload.num_prompt[part].sum())
        recorded, replayed = int(cached[part].sum()) / prompt, int(run.requests["hit"][part].sum()) / prompt
        first, last = workload.id(int(part[0])), workload.id(int(part[-1]))
        out.append({"first": first, "last": last, "recorded": recorded, "replayed": replayed, "difference": replayed - recorded})
    return out
