"""Small independent references: hit rates of a trace counted with nothing but dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from simkv.workload.workload import Workload


def addresses(workload: Workload, i: int, step: int) -> list[int]:
    """The content address (seed, position) of every ``step``-th prompt token of request ``i``, as one number each."""
    runs = workload.runs[workload.first_run[i] : workload.first_run[i + 1]]
    ends = np.cumsum(runs["n"].astype(np.int64))
    at = np.arange(0, workload.num_prompt[i], step)
    run = np.searchsorted(ends, at, side="right")
    position = runs["start"][run] + at - (ends - runs["n"])[run]
    seed = runs["seed"][run]
    if (seed < 0).any():
        return workload.tokens[(-1 - seed + position)].tolist()
    return (seed * (1 << 32) + position).tolist()


def infinite(prompts: Iterable[Sequence[Hashable]], chained: bool) -> tuple[int, int]:
    """``(hits, blocks)`` of a cache that forgets nothing: leading blocks that were seen with the same blocks before them."""
    seen: set[Hashable] = set()
    hits = total = 0
    for blocks in prompts:
        keys = list(blocks) if chained else prefixes(blocks)
        hits += leading(keys, seen)
        total += len(keys)
        seen.update(keys)
    return hits, total


def prefixes(blocks: Sequence[Hashable]) -> list[int]:
    """A key for each block that depends on all before it."""
    keys, key = [], 0
    for block in blocks:
        key = hash((key, block))
        keys.append(key)
    return keys


def leading(keys: Sequence[Hashable], seen: Iterable[Hashable]) -> int:
    """How many keys from the front are in ``seen``."""
    for n, key in enumerate(keys):
        if key not in seen:  # type: ignore[operator]
            return n
    return len(keys)


def lru(prompts: Iterable[Sequence[int]], capacity: int, tail_first: bool) -> float:
    """Share of chained blocks found in a cache of ``capacity`` blocks that evicts the least recently used.

    A request's hits are counted before it touches its blocks; ``tail_first`` touches them from the end, so that the
    front of a prompt outlives its tail, as in vLLM.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    for blocks in prompts:
        hits += leading(blocks, cache)
        total += len(blocks)
        for block in reversed(blocks) if tail_first else blocks:
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits / total
