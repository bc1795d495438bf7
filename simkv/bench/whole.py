"""The parts of ``make bench`` that measure whole processes. Each returns its title, Markdown lines, whether totals were right.

Nothing heavy is imported here: a child process inherits its parent's peak memory, so the parent must stay small.
"""

from __future__ import annotations

import statistics

from simkv.bench.process import simkv

Section = tuple[str, list[str], bool]

MOONCAKE = {"block_size=512": "num_gpu_blocks=8192", "block_size=16": "num_gpu_blocks=262144"}
COPIES = 10
SAME = ("requests", "finished", "steps", "scheduled_tokens", "queries", "hits", "stored_blocks", "removed_blocks", "preemptions")


def mooncake() -> Section:
    """The whole process: start, read 12,031 requests, replay, print."""
    lines = [
        "| block size | blocks | event log | CPU s | peak MB | hit rate | finished |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    right = True
    for block, pool in MOONCAKE.items():
        for log in ("--no-events", "--events"):
            costs = [simkv("replay", "mooncake", "--set", block, "--set", pool, log) for _ in range(3)]
            cpu, rss = statistics.median(c.cpu_s for c in costs), max(c.rss_mb for c in costs)
            s = costs[0].result
            right &= all({k: c.result[k] for k in SAME} == {k: s[k] for k in SAME} for c in costs) and s["finished"] == s["requests"]
            size, blocks = block.split("=")[1], int(pool.split("=")[1])
            kind = "on" if log == "--events" else "off"
            lines.append(f"| {size} | {blocks:,} | {kind} | {cpu:.2f} | {rss:,.0f} | {s['hit_rate']:.2%} | {s['finished']:,} |")
    return "Mooncake conversation trace, 12,031 requests, whole process (`simkv replay mooncake`)", lines, right


def ten_times() -> Section:
    """The same trace ten times over: is the cost linear, and is memory bounded?"""
    settings = ("--set", "block_size=512", "--set", "num_gpu_blocks=8192", "--no-events")
    lines, right = ["| requests | CPU s | peak MB | hit rate |", "| ---: | ---: | ---: | ---: |"], True
    for copies in (1, COPIES):
        cost = simkv("replay", "mooncake", "--copies", str(copies), *settings)
        s = cost.result
        right &= s["finished"] == s["requests"]
        lines.append(f"| {s['requests']:,} | {cost.cpu_s:.2f} | {cost.rss_mb:,.0f} | {s['hit_rate']:.2%} |")
    return (
        f"The same trace {COPIES} times over (contents of its own in each copy), block size 512, 8,192 blocks, whole process",
        lines,
        right,
    )
