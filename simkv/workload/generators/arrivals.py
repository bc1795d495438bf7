"""When requests arrive. Every function returns sorted seconds of whole microseconds, the first gap included."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simkv.errors import SettingsError
from simkv.workload.generators.draws import MICRO, Draws
from simkv.workload.generators.params import Values
from simkv.workload.workload import F8, I8


@dataclass(frozen=True, slots=True)
class Arrivals:
    """``arrive`` and ``after`` as in ``Workload`` (``after`` is ``None`` in an open loop), ``user`` of each request."""

    arrive: F8
    after: I8 | None
    user: I8


def poisson(draws: Draws, n: int, rate: float) -> F8:
    """Independent users: exponential gaps of mean ``1 / rate``."""
    return _times(draws.stream("arrivals").exponential(MICRO / rate, n))


def gamma(draws: Draws, n: int, rate: float, cv: float) -> F8:
    """Gaps of mean ``1 / rate`` whose standard deviation is ``cv`` times that: bursts and silences for ``cv`` above 1."""
    shape = 1 / (cv * cv)
    return _times(draws.stream("arrivals").gamma(shape, MICRO / (rate * shape), n))


def diurnal(draws: Draws, n: int, rate: float, period_s: float, swing: float) -> F8:
    """A Poisson process whose rate is ``rate * (1 + swing * sin(2 pi t / period_s))``, by thinning (Lewis and Shedler)."""
    stream = draws.stream("arrivals")
    peak = rate * (1 + swing)
    kept: list[F8] = []
    count, now = 0, 0.0
    while count < n:
        size = int(1.2 * (n - count) * (1 + swing)) + 64
        t = now + _times(stream.exponential(MICRO / peak, size))
        now = float(t[-1])
        accept = stream.random(size) * (1 + swing) < 1 + swing * np.sin(2 * math.pi / period_s * t)
        kept.append(t[accept])
        count += len(kept[-1])
    return np.concatenate([np.zeros(0), *kept])[:n]


def closed_loop(draws: Draws, n: int, users: int, think_s: float) -> tuple[F8, I8]:
    """``users`` users in turn; each sends again ``think_s`` seconds (exponential) after its answer.

    Returns:
        ``arrive`` (first request of a user: after one think time from the start; else seconds after its predecessor's
        end) and ``after`` (the predecessor, ``-1`` for first requests).
    """
    index = np.arange(n, dtype=np.int64)
    after = np.where(index < users, -1, index - users)
    arrive = draws.pauses("arrivals", n, think_s)
    first = min(users, n)
    arrive[:first] = np.sort(arrive[:first])
    return arrive, after


def arrivals(draws: Draws, n: int, v: Values) -> Arrivals:
    """Arrivals as the common parameters of ``params.arriving`` say; users are drawn evenly, in a closed loop in turn."""
    kind, rate, users = v["arrivals"], v["rate"], v["users"]
    if kind == "closed loop":
        arrive, after = closed_loop(draws, n, users, v["think_s"])
        return Arrivals(arrive, after, np.arange(n, dtype=np.int64) % users)
    user = draws.choices("users", n, users)
    if kind == "poisson":
        return Arrivals(poisson(draws, n, rate), None, user)
    if kind == "gamma":
        return Arrivals(gamma(draws, n, rate, v["cv"]), None, user)
    if kind == "diurnal":
        return Arrivals(diurnal(draws, n, rate, v["period_s"], v["swing"]), None, user)
    raise SettingsError("arrivals", kind, "poisson, gamma, diurnal or closed loop")


def _times(gaps_us: F8) -> F8:
    return np.cumsum(np.rint(gaps_us).astype(np.int64)) / MICRO
