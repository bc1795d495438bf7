"""Sets of workers as bits, 64 to a word: ``u8[n, words]`` for n things, and how Python fills one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.keys import U
from simkv.fleet.routing.compiled import inline

WORD = 64


def no_sets(n: int, workers: int) -> npt.NDArray[np.uint64]:
    """Empty sets, shape ``[n, words]``."""
    return np.zeros((n, (workers + WORD - 1) // WORD), np.uint64)


def fill(words: npt.NDArray[np.uint64], workers: Iterable[int]) -> None:
    """Make one set hold exactly these workers."""
    bits = sum(1 << worker for worker in workers)
    for i in range(len(words)):
        words[i] = bits >> (WORD * i) & (1 << WORD) - 1


@inline
def copy_set(sets, source, target):
    for w in range(sets.shape[1]):
        sets[target, w] = sets[source, w]


@inline
def clear_set(sets, i):
    for w in range(sets.shape[1]):
        sets[i, w] = U(0)


@inline
def include(sets, i, worker):
    sets[i, worker >> 6] |= U(1) << U(worker & 63)


@inline
def holds(words, worker):
    return words[worker >> 6] >> U(worker & 63) & U(1) != U(0)


@inline
def intersect(words, sets, i):
    """Keep of one set what another has as well; whether anything is left."""
    left = False
    for w in range(words.size):
        words[w] &= sets[i, w]
        left |= words[w] != U(0)
    return left


@inline
def common_to(words, sets, i):
    """Whether two sets have a worker in common."""
    both = U(0)
    for w in range(words.size):
        both |= words[w] & sets[i, w]
    return both != U(0)
