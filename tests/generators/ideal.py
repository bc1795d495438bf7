"""What an infinite cache would find: a slow, plain model for small workloads."""

from __future__ import annotations

import numpy as np

from simkv.workload.workload import F8, Workload, tokens_of


def hit_tokens(workload: Workload, block: int = 16) -> F8:
    """Tokens of each prompt found in whole blocks, if nothing is ever evicted and requests come one after the other."""
    seen: set[int] = set()
    out = np.zeros(len(workload))
    for i in range(len(workload)):
        tokens, prompt = tokens_of(workload, i), int(workload.num_prompt[i])
        salt = workload.salts[workload.salt[i]] if workload.salt is not None else ""
        keys, key = [], hash(salt)
        for at in range(0, len(tokens) - block + 1, block):
            key = hash((key, tokens[at : at + block].tobytes()))
            keys.append(key)
        usable = keys[: (prompt - 1) // block]
        while int(out[i]) < len(usable) and usable[int(out[i])] in seen:
            out[i] += 1
        seen.update(keys)
    return out * block


def hit_rate(workload: Workload) -> float:
    """Of all prompt tokens, the share found."""
    return float(hit_tokens(workload).sum() / workload.num_prompt.sum())
