"""The part of ``make bench`` that measures SGLang's radix cache and scheduler, beside SGLang's own on the same case."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from simkv.bench.whole import Section
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.layout import INSERT
from simkv.engine.sglang.operations import SglangCache, operation_table
from simkv.replay import replay
from simkv.settings import SglangSettings
from simkv.workload.workload import RUN, Workload

REQUESTS, GROUPS, SHARED, OWN, OUTPUT = 2_000, 25, 1_024, 256, 16
"""Each prompt: the first 1,024 tokens are one of 25, the last 256 nobody else's. So 79 % of all prompt tokens can be found."""
ROOMY, TIGHT = 800_000, 100_000
"""Tokens of a pool nothing is evicted from, and of one that evicts."""
SGLANG_TREE = {(1, ROOMY): "4,151 … 12,019", (1, TIGHT): "2,423 … 6,803", (16, ROOMY): "2,006 … 13,189", (16, TIGHT): "758 … 7,763"}
"""Requests/s of SGLang 0.5.23's cache alone (its compiled tree, the default) on one core, on this case: with a request's
bookkeeping around it, and with a bare loop around it on the machine of the README's figures."""
SGLANG_LOOP = {1: "159 … 416", 16: "159 … 1,827"}
"""The same of its scheduler with cache, without a model, 16 output tokens a request; by page size."""
RECORDED = {"requests": 2000, "finished": 2000, "steps": 547, "hits": 2_022_400, "scheduled_tokens": 567_600, "preemptions": 0}
RECORDED_CACHED = {1: 99_854, 16: 99_328}
"""What SGLang 0.5.23's own scheduler did with the case in the pool that evicts, and the tokens it had cached at the end."""


def prompts() -> Workload:
    """The case with real token ids, all requests waiting from the start, groups in turn."""
    rng = np.random.default_rng(79)
    tokens = rng.integers(10, 32_000, (REQUESTS, SHARED + OWN + OUTPUT), dtype=np.int32)
    tokens[:, :SHARED] = tokens[np.arange(REQUESTS) % GROUPS, :SHARED]
    runs = np.zeros(REQUESTS, RUN)
    runs["seed"], runs["start"], runs["n"] = -1, np.arange(REQUESTS) * tokens.shape[1], tokens.shape[1]
    return Workload(
        "shared prompts",
        "bench",
        np.zeros(REQUESTS),
        np.full(REQUESTS, SHARED + OWN, np.int32),
        np.full(REQUESTS, OUTPUT, np.int32),
        np.arange(REQUESTS + 1),
        runs,
        tokens.reshape(-1),
        time_unit="steps",
        step_time={"mode": "step"},
    )


def tree_alone(contents: Workload, page: int, pool: int) -> SglangCache:
    """An empty cache, and one insertion of each prompt to perform."""
    operations = operation_table([INSERT] * len(contents))
    return SglangCache(contents, SglangConfig(page_size=page, capacity=pool), operations, np.arange(len(contents)), 1)


def cache_alone(contents: Workload, page: int, pool: int) -> tuple[float, float]:
    """Match, lock, evict, allocate, insert, unlock for each prompt, one after another: ``(requests/s, share found)``."""
    seconds = []
    for _ in range(6):
        cache = tree_alone(contents, page, pool)
        start = time.perf_counter()
        cache.run(0, REQUESTS)
        seconds.append(time.perf_counter() - start)
    found = float(cache.operations["matched"].sum()) / (REQUESTS * (SHARED + OWN))
    return REQUESTS / statistics.median(seconds[1:]), found


def whole_loop(contents: Workload, page: int, pool: int, events: bool) -> tuple[float, dict[str, Any]]:
    """Scheduler and cache, 16 output tokens each: ``(requests/s, totals)``."""
    settings = SglangSettings(page_size=page, max_total_tokens=pool, max_running_requests=64, chunked_prefill_size=8192)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        run = replay(contents, settings, events=events)
        seconds.append(time.perf_counter() - start)
    return REQUESTS / statistics.median(seconds[1:]), run.summary()


def radix() -> Section:
    """SGLang's case: cache alone, then with the scheduler around it."""
    contents, right = prompts(), True
    lines = ["| | page | pool | requests/s | SGLang's own | prompt tokens found |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for (page, pool), own in SGLANG_TREE.items():
        speed, found = cache_alone(contents, page, pool)
        right &= round(found, 2) == 0.79
        lines.append(f"| cache alone | {page} | {pool:,} | {speed:,.0f} | {own} | {found:.1%} |")
    for page, events in ((1, False), (1, True), (16, False), (16, True)):
        speed, s = whole_loop(contents, page, TIGHT, events)
        right &= {k: s[k] for k in RECORDED} == RECORDED and (s["stored_blocks"] - s["removed_blocks"]) * page == RECORDED_CACHED[page]
        kind = "with event log" if events else "no event log"
        lines.append(f"| scheduler and cache, {kind} | {page} | {TIGHT:,} | {speed:,.0f} | {SGLANG_LOOP[page]} | {s['hit_rate']:.1%} |")
    lines += ["", f"Totals {'equal those of' if right else '**differ from**'} SGLang's own scheduler on the same requests."]
    return f"SGLang: {REQUESTS:,} requests of {SHARED + OWN:,} tokens, one core", lines, right
