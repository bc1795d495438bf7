"""schedule_policy=random: Python's ``random.shuffle`` over Python's generator (MT19937), seeded with random_seed.

The server seeds Python's global generator at start-up and shuffles the queue in every pass; other users of that generator
are not modelled. A recorded order can be given instead.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel, splice

N, M = 624, 397
U = np.uint64
UPPER, LOWER, MATRIX = U(0x80000000), U(0x7FFFFFFF), U(0x9908B0DF)


@kernel
def next_word(state):
    """32 random bits; ``state[624]`` is the position."""
    if state[N] >= N:
        for k in range(N):
            y = (U(state[k]) & UPPER) | (U(state[(k + 1) % N]) & LOWER)
            state[k] = np.uint32(U(state[(k + M) % N]) ^ (y >> U(1)) ^ (MATRIX if y & U(1) else U(0)))
        state[N] = 0
    y = U(state[state[N]])
    state[N] += 1
    y ^= y >> U(11)
    y ^= (y << U(7)) & U(0x9D2C5680)
    y ^= (y << U(15)) & U(0xEFC60000)
    return (y ^ (y >> U(18))) & U(0xFFFFFFFF)


@kernel
def below(state, n):
    """A random whole number below ``n``, as random.Random._randbelow draws it."""
    bits = 0
    while n >> bits:
        bits += 1
    while True:
        x = np.int64(next_word(state) >> U(32 - bits))
        if x < n:
            return x


@splice
def shuffle(e, cfg, c):
    if cfg.given_order:
        for i in range(c.wait_len):
            e.queue[c.wait_head + i].waiting = e.sorted[i]
        return
    for i in range(c.wait_len - 1, 0, -1):
        j = below(e.random, i + 1)
        x = e.queue[c.wait_head + i].waiting
        e.queue[c.wait_head + i].waiting = e.queue[c.wait_head + j].waiting
        e.queue[c.wait_head + j].waiting = x
