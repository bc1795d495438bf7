"""The Chrome trace format (JSON, opens in Perfetto): requests as nested slices, steps, counters, preemptions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.events.export.kv_events import rows
from simkv.events.export.output import replacing
from simkv.events.layout import PREEMPTED
from simkv.events.log import EventLog
from simkv.workload.workload import Workload

ENGINE, REQUESTS = 1, 2
MAX_STEPS = 100_000
PHASES = (("queued", "arrive", "scheduled"), ("prefill", "scheduled", "first_token"), ("decode", "first_token", "finish"))


def write_chrome(
    log: EventLog,
    workload: Workload,
    requests: npt.NDArray[np.void],
    target: Path,
    *,
    info: dict[str, Any] | None = None,
    max_requests: int = 2000,
    max_steps: int = MAX_STEPS,
) -> dict[str, int]:
    """Write the trace and return what is in it and what was left out.

    Requests are async slices (queued, prefill, decode inside one of the whole life), steps are slices on one track,
    KV cache usage, running and waiting requests are counters, preemptions are instants on the step track.

    Args:
        requests: ``Run.requests``: seconds of ``arrive``, ``scheduled``, ``first_token``, ``finish`` (NaN: not reached).
        max_requests: keep the first so many by arrival; steps are kept for as long as these requests live.
        max_steps: and no more steps than that.
    """
    unit = 1e6 if workload.time_unit == "seconds" else 1e3
    order = np.argsort(requests["arrive"], kind="stable")
    order = order[np.isfinite(requests["arrive"][order])][:max_requests]
    lives = np.concatenate([requests[name][order] for name in ("arrive", "scheduled", "first_token", "finish")])
    until = math.inf if len(order) == len(requests) else float(np.nanmax(lives)) if len(lives) else 0.0
    shown = min(int(np.searchsorted(log.steps["time"], until, side="right")), max_steps)
    left_out = {
        "requests": len(order),
        "requests_left_out": len(requests) - len(order),
        "steps": shown,
        "steps_left_out": len(log.steps) - shown,
    }
    note = f"1 step is drawn as 1 ms. {json.dumps(left_out)}" if unit == 1e3 else json.dumps(left_out)
    with replacing(target) as out:
        other = {**(info or {}), **left_out, "note": note}
        out.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n')
        out.write(",\n".join(json.dumps(e) for e in _names()))
        end = float(log.steps["end"][-1]) if len(log.steps) else 0.0
        for event in (
            *_requests(workload, requests, order, unit, end),
            *_steps(log, shown, unit),
            *_preemptions(log, workload, shown, unit),
        ):
            out.write(",\n" + json.dumps(event))
        out.write("\n]}\n")
    return left_out


def _names() -> list[dict[str, Any]]:
    def name(what: str, pid: int, text: str, **more: int) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "args": {"name": text}, **more}

    return [
        name("process_name", ENGINE, "engine, replica 0"),
        name("process_name", REQUESTS, "requests"),
        name("thread_name", ENGINE, "steps", tid=1),
    ]


def _requests(
    workload: Workload, requests: npt.NDArray[np.void], order: npt.NDArray[np.int64], unit: float, end: float
) -> Iterator[dict[str, Any]]:
    for i in order.tolist():
        row = requests[i]
        times = {name: float(row[name]) for name in ("arrive", "scheduled", "first_token", "finish")}
        last = times["finish"] if math.isfinite(times["finish"]) else max(end, *(t for t in times.values() if math.isfinite(t)))
        base = {"cat": "request", "id": hex(i), "pid": REQUESTS, "tid": 1}
        facts = {
            "request": workload.id(i),
            "prompt_tokens": int(workload.num_prompt[i]),
            "cached_tokens": int(row["hit"]),
            "generated": int(row["generated"]),
            "preempted": int(row["preempted"]),
        }
        yield {**base, "ph": "b", "name": workload.id(i), "ts": times["arrive"] * unit, "args": facts}
        for phase, start, stop in PHASES:
            if not math.isfinite(times[start]):
                break
            to = times[stop] if math.isfinite(times[stop]) else last
            yield {**base, "ph": "b", "name": phase, "ts": times[start] * unit}
            yield {**base, "ph": "e", "name": phase, "ts": to * unit}
        yield {**base, "ph": "e", "name": workload.id(i), "ts": last * unit}


def _steps(log: EventLog, shown: int, unit: float) -> Iterator[dict[str, Any]]:
    steps, usable = log.steps[:shown], max(int(log.header["num_blocks"]) - 1, 1)
    columns = ("time", "duration", "prefill", "decode", "running", "waiting", "free", "queries", "hits")
    free_before, batch_before = -1, (-1, -1)
    for s, row in enumerate(zip(*(steps[c].tolist() for c in columns), strict=True)):
        time, duration, prefill, decode, running, waiting, free, queries, hits = row
        if prefill or decode:
            name = "prefill + decode" if prefill and decode else "prefill" if prefill else "decode"
            args = {"step": s, "prefill_tokens": prefill, "decode_requests": decode, "queries": queries, "hits": hits}
            length = duration if unit == 1e6 else 1.0
            yield {"ph": "X", "pid": ENGINE, "tid": 1, "name": name, "ts": time * unit, "dur": length * unit, "args": args}
        if free != free_before:
            yield {"ph": "C", "pid": ENGINE, "name": "KV cache usage", "ts": time * unit, "args": {"usage": 1 - free / usable}}
        if (running, waiting) != batch_before:
            batch = {"running": running, "waiting": waiting}
            yield {"ph": "C", "pid": ENGINE, "name": "requests", "ts": time * unit, "args": batch}
        free_before, batch_before = free, (running, waiting)


def _preemptions(log: EventLog, workload: Workload, shown: int, unit: float) -> Iterator[dict[str, Any]]:
    times = log.steps["time"]
    for step, req, _, _, _ in rows(log, (PREEMPTED,)):
        if step >= shown:
            return
        name = f"preempted {workload.id(req)}"
        yield {"ph": "i", "pid": ENGINE, "tid": 1, "s": "p", "name": name, "ts": float(times[step]) * unit, "args": {"step": step}}
