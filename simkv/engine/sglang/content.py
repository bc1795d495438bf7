"""Token content as runs: how far two positions agree, and a 64-bit hash of a page. Token by token only where ids are written out.

A position is a run and an offset in it. Equal content has one description (simkv.workload.merge_runs), so runs of
synthetic content are equal where content and offset are.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel
from simkv.engine.vllm.keys import S32, U, mix, mix_token

STRIDE = 64


@kernel
def advance_by(runs, r, at, n):
    """The position ``n`` tokens further on."""
    while n > 0:
        left = runs[r].n - at
        if n < left:
            return r, at + n
        n -= left
        r += 1
        at = 0
    return r, at


@kernel
def equal_tokens(tokens, a, b, n):
    """How many of ``n`` written out tokens from two places on are equal. Whole strides are compared without a look in between."""
    if a == b:
        return n
    x, y = tokens[a : a + n], tokens[b : b + n]
    i = 0
    while i + STRIDE <= n:
        different = np.int32(0)
        for k in range(STRIDE):
            different |= x[i + k] ^ y[i + k]
        if different != 0:
            break
        i += STRIDE
    while i < n and x[i] == y[i]:
        i += 1
    return i


@kernel
def common_tokens(runs, tokens, r, at, q, qat, limit):
    """How many of ``limit`` tokens from two positions on are equal."""
    done = 0
    while done < limit:
        x, y = runs[r], runs[q]
        n = min(min(x.n - at, y.n - qat), limit - done)
        if x.seed < 0 and y.seed < 0:
            same = equal_tokens(tokens, -1 - x.seed + x.start + at, -1 - y.seed + y.start + qat, n)
            if same < n:
                return done + same
        elif x.seed != y.seed or x.start + at != y.start + qat:
            return done
        done += n
        at += n
        qat += n
        if at == x.n:
            r += 1
            at = 0
        if qat == y.n:
            q += 1
            qat = 0
    return done


@kernel
def hash_tokens(runs, tokens, r, at, n, h):
    """Hash of ``n`` tokens from a position on, starting from ``h``."""
    while n > 0:
        run = runs[r]
        m = min(run.n - at, n)
        if run.seed < 0:
            first = -1 - run.seed + run.start + at
            for p in range(first, first + m):
                h = mix_token(h, tokens[p])
        else:
            h = mix(mix(h, U(run.seed)), (U(run.start + at) << S32) | U(m))
        n -= m
        at += m
        if at == run.n:
            r += 1
            at = 0
    return mix(h, np.uint64(1))
