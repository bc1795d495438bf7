"""Decoding runs out of memory: running requests are thrown back until the rest fits (ScheduleBatch.retract_decode, 0.5.23)."""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.batch import decode_fits
from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import ABORTED
from simkv.engine.sglang.life import RETRACT_STEPS, throw_back
from simkv.engine.sglang.output import end_request


@kernel
def is_kept_before(cfg, a, b):
    """More important (retraction_policy priority), then more output, then shorter prompt."""
    if cfg.retract_by_priority and a.priority != b.priority:
        return (a.priority > b.priority) == (cfg.low_first == 0)
    if a.generated != b.generated:
        return a.generated > b.generated
    return a.num_prompt < b.num_prompt


@splice
def sort_by_retraction(e, cfg, c):
    """The running list in order of who is kept longest; equals keep their order."""
    for i in range(1, c.in_running):
        r = e.running[i]
        k = i
        while k > 0 and is_kept_before(cfg, e.reqs[r], e.reqs[e.running[k - 1]]):
            e.running[k] = e.running[k - 1]
            k -= 1
        e.running[k] = r


@splice
def ratio_after(e, c):
    """What share of max_new_tokens is expected to be generated from now on."""
    decoded, most = 0, 0
    for i in range(c.in_running):
        decoded += e.reqs[e.running[i]].generated
        most += e.reqs[e.running[i]].max_new
    return min(1.0, (decoded + RETRACT_STEPS * c.in_running) / (most + 1))


@kernel
def retract(e, cfg, c):
    """Throw back from the end of the list, at least one if two are left, until the next step fits. The last one is aborted."""
    sort_by_retraction(e, cfg, c)
    first = True
    while c.in_running > 1 and (first or not decode_fits(e, cfg, c)):
        first = False
        c.in_running -= 1
        r = np.int64(e.running[c.in_running])
        throw_back(e, cfg, c, r, np.int64(c.in_running))
        e.thrown_back[c.retracted] = r
        c.retracted += 1
    if c.in_running == 1 and not decode_fits(e, cfg, c):
        r = np.int64(e.running[0])
        throw_back(e, cfg, c, r, np.int64(0))
        c.preemptions -= 1
        e.reqs[r].preempted -= 1
        end_request(e, cfg, c, r, np.int64(ABORTED))
        c.aborted += 1
        c.in_running = 0
    c.ratio = ratio_after(e, c)
