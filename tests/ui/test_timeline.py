import math

import numpy as np
import pytest

from simkv.events.layout import STEP
from simkv.ui.cards import cards
from simkv.ui.timeline import Timeline

REQUESTS = np.dtype([("arrive", "f8"), ("first_token", "f8")])


def timeline(n: int = 100, dt: float = 1.0, time_unit: str = "seconds") -> Timeline:
    steps = np.zeros(n, STEP)
    steps["time"] = np.arange(n) * dt
    steps["duration"] = dt
    steps["end"] = steps["time"] + dt
    steps["queries"] = 100
    steps["hits"] = np.where(np.arange(n) < n // 2, 80, 20)
    steps["free"] = np.linspace(99, 0, n)
    steps["removed"] = np.where(np.arange(n) < n // 2, 0, 7)
    requests = np.zeros(n, REQUESTS)
    requests["arrive"] = steps["time"]
    requests["first_token"] = steps["time"] + 0.5
    requests["first_token"][-1] = math.nan
    return Timeline(steps, requests, 99, time_unit)


def test_window_is_round_and_named() -> None:
    assert timeline().window_name == "last 10 s"
    assert timeline(10_000).window_name == "last 5 min"
    assert timeline(time_unit="steps").window_name == "last 10 steps"


def test_rates_cover_their_window_only() -> None:
    t = timeline()
    assert t.hit_rate(40) == pytest.approx(0.8)
    assert t.hit_rate(99) == pytest.approx(0.2)
    assert t.looked_up(99) == 1000
    assert t.evictions(99) == pytest.approx(7.0)
    assert t.evictions(10) == 0.0
    assert t.usage(99) == pytest.approx(1.0)
    assert t.ttft(50) == pytest.approx(0.5)


def test_the_mean_is_over_time_and_idle_time_counts() -> None:
    t = timeline(4)
    t.steps["time"], t.steps["end"], t.steps["free"] = [0, 1, 10, 19], [1, 4, 19, 20], [99, 0, 33, 99]
    assert t.rolling.mean_usage == pytest.approx((1 * 0 + 3 * 1 + 6 * 0 + 9 * 2 / 3 + 0) / 20)
    nothing = Timeline(t.steps[:0], t.requests, 99)
    assert math.isnan(nothing.usage(0))


def test_card_and_curve_are_one_figure() -> None:
    t = timeline()
    moments = t.rolling.at(t.time[5:])
    assert t.rolling.hit_rate(moments).tolist() == [t.hit_rate(s) for s in range(5, 100)]
    assert t.rolling.rate("removed", moments).tolist() == [t.evictions(s) for s in range(5, 100)]
    assert math.isnan(t.evictions(0))


def test_nothing_looked_up_is_no_data() -> None:
    t = timeline()
    t.steps["queries"] = t.steps["hits"] = 0
    assert math.isnan(Timeline(t.steps, t.requests, 99).hit_rate(50))
    nobody = Timeline(t.steps, t.requests[:0], 99)
    assert math.isnan(nobody.ttft(50))


def test_cards_name_window_and_unit() -> None:
    names = ("hit_rate", "usage", "evictions_per_s", "ttft_p95", "preemptions")
    curves = {name: np.array([math.nan, 1.0, 2.0]) for name in names}
    shown = cards(timeline(), curves, 99, hit_rate=0.5, ttft_p95_s=0.5, evicted=350, preemptions=0)
    assert [c.label for c in shown] == [
        "Hit rate, last 10 s",
        "KV usage, live requests",
        "Evictions / s, last 10 s",
        "TTFT p95, last 10 s",
        "Preemptions up to here",
    ]
    assert [c.value for c in shown] == ["20.0 %", "100.0 %", "7", "500 ms", "0"]
    assert all(c.help and c.delta for c in shown)
    assert all(math.isnan(c.curve[0]) and c.curve[1:] == (1.0, 2.0) for c in shown), "no data is a gap, not a jump in time"
    flat = dict.fromkeys(names, np.array([math.nan, 1.0]))
    assert all(c.curve == () for c in cards(timeline(), flat, 99, hit_rate=0.5, ttft_p95_s=0.5, evicted=350, preemptions=0))


def test_cards_of_a_partial_run_and_of_an_old_release_say_so() -> None:
    curves = {name: np.zeros(3) for name in ("hit_rate", "usage", "evictions_per_s", "ttft_p95", "preemptions")}
    whole = {"hit_rate": 0.5, "ttft_p95_s": 0.5, "evicted": 350, "preemptions": 0}
    shown = cards(timeline(), curves, 99, **whole, complete=False, at_lookup=True)
    assert all(c.delta.endswith("so far") for c in shown)
    assert "counted anew" in shown[0].help
    assert "counted at admission" in cards(timeline(), curves, 99, **whole)[0].help


def test_samples_begin_and_end_with_the_run() -> None:
    samples = timeline().samples(10)
    assert samples[0] == 0
    assert samples[-1] == 99
    assert len(samples) == 10
