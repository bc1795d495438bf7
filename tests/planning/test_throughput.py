"""Request rates at equal latency: the search, the traffic, and who comes out ahead."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simkv.errors import InputError, SettingsError
from simkv.planning.throughput import Point, equal_latency, measure, schemes, sustained_rate, traffic, uniform

DRAW = np.random.default_rng(5)
PROMPT, OUTPUT = DRAW.integers(4, 300, 120), DRAW.integers(4, 400, 120)


def test_traffic_is_the_same_for_a_seed_and_scales_with_the_rate() -> None:
    slow, again, fast, other = (traffic(PROMPT, OUTPUT, rate, seed) for rate, seed in ((1.0, 1), (1.0, 1), (4.0, 1), (1.0, 2)))
    assert np.array_equal(slow.arrive, again.arrive)
    np.testing.assert_allclose(slow.arrive, 4 * fast.arrive)
    assert np.array_equal(slow.num_prompt, fast.num_prompt)
    assert not np.array_equal(slow.num_prompt, other.num_prompt)
    assert sorted(slow.num_output.tolist()) == sorted(OUTPUT.tolist())
    assert len(PROMPT) / slow.arrive[-1] == pytest.approx(1.0, rel=0.3)


def test_the_rate_at_the_target_lies_between_the_rates_around_it() -> None:
    points = [Point(1.0, 0.02, 1), Point(2.0, 0.04, 2), Point(4.0, 0.24, 3)]
    assert sustained_rate(points, 0.14) == pytest.approx(3.0)
    assert sustained_rate(points, 0.01) is None, "even the lowest rate is too slow"
    assert sustained_rate(points[:2], 0.5) == 2.0, "the target was never reached"


def test_normalised_latency_of_a_lonely_request() -> None:
    """At a very low rate nobody waits: end to end is one prefill and a decode step for each further token."""
    point = measure(np.array([50]), np.array([10]), schemes()["oracle, buddy"], 1e-3, 0)
    assert point.running == 1
    assert 0.01 < point.latency_s < 0.06


def test_paged_memory_sustains_more_than_any_reservation() -> None:
    settings = schemes(num_gpu_blocks=300)
    found = {s.scheme: s for s in equal_latency(PROMPT, OUTPUT, settings, target_s=0.15, refine=1)}
    rates = [found[name].rate for name in ("paged", "oracle, exact", "oracle, buddy", "pow2, buddy", "max, buddy", "static")]
    assert None not in rates
    assert rates == sorted(rates, key=lambda rate: -(rate or math.nan))
    assert found["paged"].paged_is_better == 1
    assert found["max, buddy"].paged_is_better == pytest.approx((rates[0] or 0) / (rates[4] or 1))
    for s in found.values():
        assert s.memory is not None
        assert sum(s.memory.values()) == pytest.approx(1)
        tried = [p.rate for p in s.curve]
        assert tried == sorted(set(tried)), "rising rates, none twice"
        assert s.curve[-1].latency_s > 0.15 >= s.curve[0].latency_s


def test_uniform_lengths_are_the_same_work() -> None:
    prompt, output = uniform(PROMPT, OUTPUT)
    assert set(prompt.tolist()) == {round(PROMPT.mean())}
    assert len(output) == len(OUTPUT)
    assert abs(int(output.sum()) - int(OUTPUT.sum())) <= len(OUTPUT) / 2


def test_bad_targets_say_so() -> None:
    with pytest.raises(SettingsError, match="latency=0"):
        equal_latency(PROMPT, OUTPUT, schemes(), target_s=0)
    with pytest.raises(InputError, match="no request"):
        equal_latency(PROMPT[:0], OUTPUT[:0], schemes())
