"""Which beams survive a step, and what that does to the tables (LLMEngine._process_sequence_group_outputs, 0.2.7).

The sampler proposes ``2 K`` continuations in order of score, each of one of the ``K`` beams; the first ``K`` live on. A
beam's last continuation keeps its sequence, earlier ones are forks. A model decides the scores in the engine; here a
candidate ``i`` descends from beam ``i mod K``, or, with the chance ``beam_resampling``, from a beam drawn at random. The
draw depends on the seed, the request, the position and ``i`` only, not on the schedule. Recorded parents can be given
instead. No beam ends before the request's output length.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.keys import S32, U, mix
from simkv.engine.vllm_v0.blocks import fork_lane, free_lane
from simkv.engine.vllm_v0.compiled import inline, kernel

FIRST, LAST, NEXT = range(3)
"""Rows of ``descent``: a beam's best candidate, its worst one, the lanes of the next step."""


@inline
def drawn_parent(cfg, req, position, i, beams):
    draw = mix(mix(cfg.seed, U(req)), (U(position) << S32) | U(i))
    if draw < cfg.resampling:
        return np.int64(((mix(draw, U(1)) >> S32) * U(beams)) >> S32)
    return np.int64(i % beams)


@kernel
def choose_parents(e, cfg, req, position, beams):
    """The beam, as a place in the group's order, that each candidate continues; ``position`` counts output tokens from 0."""
    for i in range(2 * cfg.width):
        if beams == 1:
            e.parents[i] = 0
        elif cfg.recorded:
            e.parents[i] = e.recorded[e.first_recorded[req] + position - 1, i]
        else:
            e.parents[i] = drawn_parent(cfg, req, position, i, beams)


@kernel
def rank_candidates(e, cfg, beams):
    """First and last candidate of every beam, -1 where it has none."""
    for p in range(beams):
        e.descent[FIRST, p] = e.descent[LAST, p] = -1
    for i in range(2 * cfg.width):
        p = e.parents[i]
        if e.descent[FIRST, p] < 0:
            e.descent[FIRST, p] = i
        e.descent[LAST, p] = i


@kernel
def spread_prompt(e, cfg, c, s):
    """After the prompt step: all sequences of the group begin as forks of the one that computed the prompt."""
    for lane in range(1, cfg.width):
        fork_lane(e, cfg, c, s, 0, lane)
        e.order[s, lane] = lane
    e.slots[s].num_seqs = cfg.width


@kernel
def descend(e, cfg, c, s, position):
    """One beam step: free what dies, fork what lives on more than once.

    Order of frees as in V0: beams without any candidate, in the group's order; then beams none of whose candidates
    survives, by the rank of their worst one. A fork of a beam whose own sequence is not among the survivors takes over
    that sequence's lane: V0 forks and frees it, which leaves the same references.
    """
    slot, width = e.slots[s], cfg.width
    beams = slot.num_seqs
    choose_parents(e, cfg, slot.req, position, beams)
    rank_candidates(e, cfg, beams)
    order, first, last, lanes = e.order[s], e.descent[FIRST], e.descent[LAST], e.descent[NEXT]
    used = 0  # bit per lane that lives on
    for p in range(beams):
        if 0 <= first[p] < width:
            used |= 1 << order[p]
        elif first[p] < 0:
            free_lane(e, cfg, c, s, order[p])
    for i in range(width, 2 * width):
        p = e.parents[i]
        if last[p] == i and first[p] >= width:
            free_lane(e, cfg, c, s, order[p])
    n = 0
    for p in range(beams):
        if 0 <= last[p] < width:
            lanes[n] = order[p]
            n += 1
    for i in range(width):
        p = e.parents[i]
        if last[p] == i:
            continue
        if last[p] >= width and first[p] == i:
            lanes[n] = order[p]
        else:
            lane = 0
            while used >> lane & 1:
                lane += 1
            used |= 1 << lane
            fork_lane(e, cfg, c, s, order[p], lane)
            lanes[n] = lane
        n += 1
    for p in range(width):
        order[p] = lanes[p]


@kernel
def end_beams(e, cfg, c, s, position):
    """The last step: beams without a candidate are freed first, the others by the rank of their worst one."""
    slot, beams = e.slots[s], e.slots[s].num_seqs
    choose_parents(e, cfg, slot.req, position, beams)
    rank_candidates(e, cfg, beams)
    for p in range(beams):
        if e.descent[FIRST, p] < 0:
            free_lane(e, cfg, c, s, e.order[s, p])
    for i in range(2 * cfg.width):
        p = e.parents[i]
        if e.descent[LAST, p] == i:
            free_lane(e, cfg, c, s, e.order[s, p])
