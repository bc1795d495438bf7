"""What routers with an index of the workers' caches compute for every candidate. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.compiled import entry, inline


@inline
def within(score):
    return min(max(score, 0.0), 1.0)


@entry
def weighted_sums(found, blocks, order, waiting, usage, prefix_weight, usage_weight, queue_weight, sums):
    """llm-d: weighted prefix, KV cache and queue scores of the pods in ``order`` into ``sums``; returns the highest sum, the most found."""
    low, high, most = waiting[order[0]], waiting[order[0]], 0
    for pod in order:
        low, high, most = min(low, waiting[pod]), max(high, waiting[pod]), max(most, found[pod])
    best = -np.inf
    for pod in order:
        prefix = found[pod] / blocks if blocks > 0 else 0.0
        queue = (high - waiting[pod]) / (high - low) if high > low else 1.0
        sums[pod] = prefix_weight * prefix + usage_weight * within(1.0 - usage[pod]) + queue_weight * queue
        best = max(best, sums[pod])
    return best, most


@entry
def less_load(held, block_size, prompt, order, loads, beta, scores):
    """production-stack's loadaware: hits less load above the mean of the endpoints in ``order`` into ``scores``.

    Returns the first endpoint with the highest score and its matched tokens; -1 if no endpoint holds anything.
    """
    total, most = 0, 0
    for w in order:
        total, most = total + loads[w], max(most, held[w])
    if most == 0:
        return -1, 0
    mean = total / order.size
    best, highest, matched = -1, -np.inf, 0
    for w in order:
        tokens = min(held[w] * block_size, prompt)
        scores[w] = tokens / max(prompt, 1) - beta * (loads[w] - mean) / max(1.0, mean)
        if scores[w] > highest:
            best, highest, matched = w, scores[w], tokens
    return best, matched
