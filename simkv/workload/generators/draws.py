"""Seeded random numbers: one stream per purpose, so that changing one parameter does not redraw everything else.

Streams are PCG64; lengths come out as whole tokens and times as whole microseconds, so the last bit of a machine's
``log`` or ``exp`` does not show and the same seed gives the same arrays everywhere.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from simkv.workload.workload import F8, I8

MICRO = 1_000_000
LONGEST = 20
"""A drawn length is at most this many times its mean."""


@dataclass(frozen=True, slots=True)
class Draws:
    """All random numbers of one workload."""

    seed: int

    def stream(self, purpose: str) -> np.random.Generator:
        """The random numbers for one purpose."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, zlib.crc32(purpose.encode())])))

    def lengths(self, purpose: str, n: int, mean: float, cv: float, low: int = 1) -> I8:
        """``n`` whole numbers: lognormal with this mean and spread, from ``low`` to 20 x mean; all equal if ``cv`` is 0."""
        if cv == 0 or mean == 0:
            return np.full(n, max(round(mean), low), np.int64)
        variance = math.log1p(cv * cv)
        drawn = np.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * self.stream(purpose).standard_normal(n))
        return np.clip(np.rint(drawn), low, max(LONGEST * mean, low)).astype(np.int64)

    def pauses(self, purpose: str, n: int, mean_s: float) -> F8:
        """``n`` exponential pauses in seconds, whole microseconds."""
        return np.rint(self.stream(purpose).exponential(mean_s * MICRO, n)) / MICRO if mean_s else np.zeros(n)

    @staticmethod
    def numbers(n: int) -> I8:
        """``0 … n - 1``: the requests themselves."""
        return np.arange(n, dtype=np.int64)

    def choices(self, purpose: str, n: int, of: int, skew: float = 0.0) -> I8:
        """``n`` numbers below ``of``; number ``k`` is drawn in proportion to ``(k + 1) ** -skew`` (0 = all alike)."""
        return np.searchsorted(np.cumsum(popularity(of, skew))[:-1], self.stream(purpose).random(n), side="right").astype(np.int64)


def popularity(of: int, skew: float) -> F8:
    """Zipf weights that add up to 1."""
    weights = np.arange(1, of + 1, dtype=np.float64) ** -skew
    out: F8 = weights / weights.sum()
    return out
