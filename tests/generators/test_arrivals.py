"""Arrival processes: sorted, on the microsecond, at the rate asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.workload.generators.arrivals import closed_loop, diurnal, gamma, poisson
from simkv.workload.generators.draws import Draws
from simkv.workload.workload import F8

SEEDS = st.integers(0, 2**63 - 1)
RATES = st.floats(0.01, 1e4)


def assert_times(t: F8, n: int) -> None:
    assert t.shape == (n,)
    assert t.dtype == np.float64
    assert np.isfinite(t).all()
    assert (t >= 0).all()
    assert (np.diff(t) >= 0).all()
    assert np.array_equal(np.rint(t * 1e6) / 1e6, t)


@given(SEEDS, st.integers(0, 500), RATES, st.floats(0.05, 10), st.floats(0, 1), st.floats(1, 1e5))
def test_times_are_sorted(seed: int, n: int, rate: float, cv: float, swing: float, period: float) -> None:
    draws = Draws(seed)
    assert_times(poisson(draws, n, rate), n)
    assert_times(gamma(draws, n, rate, cv), n)
    assert_times(diurnal(draws, n, rate, period, swing), n)


@given(SEEDS, RATES)
def test_the_rate_is_near_the_one_asked_for(seed: int, rate: float) -> None:
    n = 4000
    for t, cv in ((poisson(Draws(seed), n, rate), 1.0), (gamma(Draws(seed), n, rate, 3.0), 3.0), (gamma(Draws(seed), n, rate, 0.2), 0.2)):
        rounding = 1e-6 * rate  # a microsecond is much where requests come every 100 microseconds
        assert t[-1] * rate / n == pytest.approx(1, abs=6 * cv / math.sqrt(n) + rounding)


@given(SEEDS)
def test_spread_of_the_gaps(seed: int) -> None:
    gaps = np.diff(gamma(Draws(seed), 20_000, 10.0, 4.0))
    assert gaps.std() / gaps.mean() == pytest.approx(4, rel=0.25)
    gaps = np.diff(poisson(Draws(seed), 20_000, 10.0))
    assert gaps.std() / gaps.mean() == pytest.approx(1, rel=0.1)


@given(SEEDS)
def test_the_day_has_a_busy_and_a_quiet_half(seed: int) -> None:
    t = diurnal(Draws(seed), 10_000, 10.0, 100.0, 0.8)
    share = ((t % 100.0) < 50.0).mean()
    assert share == pytest.approx(0.5 + 0.8 / math.pi, abs=0.05)
    assert t[-1] == pytest.approx(1000, rel=0.1)


@given(SEEDS, st.integers(1, 200), st.integers(1, 50), st.floats(0, 100))
def test_closed_loop(seed: int, n: int, users: int, think: float) -> None:
    arrive, after = closed_loop(Draws(seed), n, users, think)
    assert (arrive >= 0).all()
    assert (after < np.arange(n)).all()
    assert (after < 0).sum() == min(users, n)
    chained = after[after >= 0]
    assert len(set(chained.tolist())) == len(chained)  # one answer, one next request: never more than `users` at once
    assert (np.diff(arrive[after < 0]) >= 0).all()
