"""What NVIDIA Dynamo's router computes for every worker. Compiled."""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry
from simkv.fleet.kv.prompts import Prompts, count_believed, count_held
from simkv.fleet.kv.request_keys import Keys, need_keys
from simkv.jit import record

COST = record(*((name, "f8") for name in ("credit", "decay", "scale", "request_weight", "prefill", "believes")))
"""Settings as numbers; ``prefill``: prompt tokens count; ``believes``: what was sent to a worker counts as cached there for a while."""


@entry
def costs(
    table, nodes, counts, shares, until, arena, meta, workers, requests,
    reqs, runs, prompt_tokens, images, cursor, keys,
    req, order, now, settings, overlap, held, scores, best,
):  # fmt: skip
    """Costs of the workers in ``order`` into ``scores``, the cheapest into ``best``. Returns how many are cheapest.

    ``overlap`` has the leading blocks that the index says each worker has; a router that ``believes`` finds them here.
    """
    p = Prompts(table, nodes, counts, shares, until, arena, meta, workers, requests)
    k = Keys(reqs, runs, prompt_tokens, images, cursor, keys)
    s = settings[0]
    block = k.cursor[0].block_size
    tokens = np.int64(k.reqs[req].num_prompt)
    blocks = tokens // block
    need_keys(k, req, blocks)
    if s.believes > 0:
        count_believed(p, k, req, now, overlap)
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
