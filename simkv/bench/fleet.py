"""The part of ``make bench`` about fleets: what 16 replicas cost beside one that gets all requests, for every policy."""

from __future__ import annotations

import statistics

from simkv.bench.process import Cost, simkv
from simkv.bench.whole import Section

REPLICAS = "16"
POOLS = (("512", "8192"), ("16", "262144"))
REPEATS = 3
MOST = 2.0
"""A fleet may cost so many times one replica's CPU time."""


def fleet() -> Section:
    """The whole process on the Mooncake trace, measured in turn with one replica of the same settings."""
    from simkv.fleet.routing import policy_names

    lines = [
        "| router | block size | CPU s | one replica, CPU s | ratio | peak MB | hit rate |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    right = True
    for block, pool in POOLS:
        settings = ("--set", f"block_size={block}", "--set", f"num_gpu_blocks={pool}", "--no-events")
        for name in policy_names():
            one, many = _in_turn(settings, name)
            cost, alone = (statistics.median(c.cpu_s for c in costs) for costs in (many, one))
            s = many[0].result
            right &= all(c.result["finished"] == c.result["requests"] for c in (*one, *many))
            right &= all(c.result["hits"] == s["hits"] for c in many)
            peak = max(c.rss_mb for c in many)
            over = " **over**" if cost > MOST * alone else ""
            lines.append(f"| {name} | {block} | {cost:.2f} | {alone:.2f} | {cost / alone:.2f}{over} | {peak:,.0f} | {s['hit_rate']:.2%} |")
    return f"{REPLICAS} replicas on the Mooncake trace beside one, whole process, no event log", lines, right


def _in_turn(settings: tuple[str, ...], router: str) -> tuple[list[Cost], list[Cost]]:
    one, many = [], []
    for _ in range(REPEATS):
        one.append(simkv("replay", "mooncake", *settings))
        many.append(simkv("replay", "mooncake", *settings, "--replicas", REPLICAS, "--router", router))
    return one, many
