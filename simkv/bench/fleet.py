"""The part of ``make bench`` about fleets: what 16 replicas cost beside one that gets all requests, for every policy."""

from __future__ import annotations

import statistics

from simkv.bench.process import Cost, simkv
from simkv.bench.whole import Section

REPLICAS = "16"
VLLM = {
    "512": ("--set", "block_size=512", "--set", "num_gpu_blocks=8192"),
    "16": ("--set", "block_size=16", "--set", "num_gpu_blocks=262144"),
}
"""Options by block size."""
SGLANG = {page: ("--engine", "sglang", "--set", f"page_size={page}", "--set", "max_total_tokens=1000000") for page in ("1", "16")}
PAIRS = 3
"""Runs of a fleet, each with one of a single replica beside it: a shared machine is not equally fast for long."""
MOST = 2.0
"""A fleet may cost so many times one replica's CPU time."""


def fleet() -> Section:
    """The whole process on the Mooncake trace, each policy in turn with one replica of the same settings."""
    from simkv.fleet.routing import policy_names

    cases: list[tuple[str, str, tuple[str, ...], str]] = [
        ("vllm", block, options, name) for block, options in VLLM.items() for name in policy_names()
    ]
    cases += [("sglang", page, options, name) for page, options in SGLANG.items() for name in ("round-robin", "sglang-cache-aware")]
    lines = [
        "| engine | block size | router | CPU s | ratio to one replica | peak MB | hit rate |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    right = True
    for engine, block, options, name in cases:
        pairs = [_pair(options, name) for _ in range(PAIRS)]
        ratio = statistics.median(many.cpu_s / one.cpu_s for one, many in pairs)
        cpu_s, rss_mb = statistics.median(many.cpu_s for _, many in pairs), max(many.rss_mb for _, many in pairs)
        s = pairs[0][1].result
        right &= s["finished"] == s["requests"]
        over = " (over)" if ratio > MOST else ""
        lines.append(f"| {engine} | {block} | {name} | {cpu_s:.2f} | {ratio:.2f}{over} | {rss_mb:,.0f} | {s['hit_rate']:.2%} |")
    return f"{REPLICAS} replicas on the Mooncake trace beside one, whole process, no event log", lines, right


def _pair(options: tuple[str, ...], router: str) -> tuple[Cost, Cost]:
    """One replica, and the fleet."""
    given = ("replay", "mooncake", *options, "--no-events")
    return simkv(*given), simkv(*given, "--replicas", REPLICAS, "--router", router)
