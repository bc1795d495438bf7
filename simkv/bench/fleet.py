"""The part of ``make bench`` about fleets: what 16 replicas cost beside one that gets all requests, for every policy."""

from __future__ import annotations

import statistics

from simkv.bench.process import simkv
from simkv.bench.whole import Section

REPLICAS = "16"
POOLS = (("512", "8192"), ("16", "262144"))
MOST = 2.0
"""A fleet may cost so many times one replica's CPU time."""


def fleet() -> Section:
    """The whole process on the Mooncake trace, each policy in turn with one replica of the same settings."""
    from simkv.fleet.routing import policy_names

    lines = [
        "| router | block size | CPU s | ratio to one replica | peak MB | hit rate |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    right = True
    for block, pool in POOLS:
        settings = ("--set", f"block_size={block}", "--set", f"num_gpu_blocks={pool}", "--no-events")
        one, many = [], {}
        for name in policy_names():
            one.append(simkv("replay", "mooncake", *settings))
            many[name] = simkv("replay", "mooncake", *settings, "--replicas", REPLICAS, "--router", name)
        alone = statistics.median(c.cpu_s for c in one)
        lines.append(f"| one replica | {block} | {alone:.2f} | 1 | {one[0].rss_mb:,.0f} | {one[0].result['hit_rate']:.2%} |")
        for name, cost in many.items():
            s = cost.result
            right &= s["finished"] == s["requests"]
            ratio = f"{cost.cpu_s / alone:.2f}{' (over)' if cost.cpu_s > MOST * alone else ''}"
            lines.append(f"| {name} | {block} | {cost.cpu_s:.2f} | {ratio} | {cost.rss_mb:,.0f} | {s['hit_rate']:.2%} |")
    return f"{REPLICAS} replicas on the Mooncake trace beside one, whole process, no event log", lines, right
