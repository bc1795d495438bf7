"""What NVIDIA Dynamo's router computes for every worker. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry
from simkv.fleet.kv.index import count_closed
from simkv.fleet.kv.prompts import count_believed, count_held
from simkv.fleet.kv.request_keys import need_keys

COST = np.dtype([(name, "f8") for name in ("credit", "decay", "scale", "request_weight", "prefill", "events")])
"""Settings as numbers; ``prefill``: prompt tokens count; ``events``: the index follows KV events."""
GIVEN = 2
"""``events`` of a router whose index is elsewhere: ``overlap`` is filled beforehand."""


@entry
def costs(index, p, k, req, order, now, settings, overlap, held, scores, best):
    """Costs of the workers in ``order`` into ``scores``, their cached leading blocks into ``overlap``, the cheapest into ``best``.

    Returns how many are cheapest.
    """
    s = settings[0]
    block = k.cursor[0].block_size
    tokens = np.int64(k.reqs[req].num_prompt)
    blocks = tokens // block
    need_keys(k, req, blocks)
    if s.events == 0:
        count_believed(p, k, req, now, overlap)
    elif s.events != GIVEN:
        count_closed(index, k, req, overlap)
    count_held(p, k, req, held)
    least = np.int64(1) << 62
    for i in range(order.size):
        least = min(least, np.int64(p.workers[order[i]].prefill))
    n, lowest = 0, np.inf
    for i in range(order.size):
        w = order[i]
        load = p.workers[w]
        credit = s.credit
        if s.prefill > 0 and s.decay > 0:
            excess = (load.prefill - least) / block / max((tokens + block - 1) // block, 1)
            credit = credit / (1.0 + s.decay * excess)
        decode = np.floor(load.units + 0.5) + (blocks - held[w])
        requests = s.request_weight * load.requests
        if s.prefill > 0:
            prompt = max(0.0, (load.prefill + tokens) / block - credit * overlap[w])
            cost = s.scale * prompt + decode + requests
        else:
            cost = max(0.0, decode - credit * overlap[w]) + requests
        scores[w] = cost
        if cost < lowest:
            n, lowest = 0, cost
        if cost == lowest:
            best[n] = w
            n += 1
    return n
