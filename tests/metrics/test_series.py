"""Series are sums over the steps of a run; where nothing was measured stands NaN."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.metrics.series import series
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate
from tests.engine.cases import draw_case, replayed
from tests.engine.hand import VIRTUAL, nothing, request, run, shared

NAMES = {
    "time", "window", "hit_rate", "hit_rate_last_1000", "hit_rate_total", "usage", "cached_share", "running", "waiting",
    "evictions_per_s", "stored_per_s", "prefill_tokens_per_s", "decode_tokens_per_s", "preemptions", "ttft_p95",
}  # fmt: skip


@pytest.fixture(scope="module")
def chat() -> Run:
    return replay(generate("multi_turn_chat", seed=3, requests=300, rate=20.0), EngineSettings(num_gpu_blocks=1500, max_num_seqs=16))


def test_totals(chat: Run) -> None:
    """One window over the whole run gives the run's own figures."""
    s = series(chat, points=50, window=1e9)
    assert set(s) == NAMES
    assert all(v.shape == (50,) for v in s.values())
    c, length = chat.counters, s["time"][-1] - chat.steps["time"][0]
    assert s["hit_rate"][-1] == s["hit_rate_total"][-1] == pytest.approx(c["hits"] / c["queries"])
    assert s["evictions_per_s"][-1] * length == pytest.approx(c["removed"])
    assert s["stored_per_s"][-1] * length == pytest.approx(c["stored"])
    assert (s["prefill_tokens_per_s"][-1] + s["decode_tokens_per_s"][-1]) * length == pytest.approx(c["tokens"])
    assert s["preemptions"][-1] == c["preemptions"]
    assert s["running"][-1] == chat.steps["running"][-1]
    assert s["time"][-1] == pytest.approx(chat.end_time_s)


def test_windows_by_hand(chat: Run) -> None:
    """Every point recounted from the step rows."""
    s = series(chat, points=37)
    steps, span = chat.steps, float(s["window"][0])
    start = steps["time"][0]
    assert span == pytest.approx((s["time"][-1] - start) / 20)
    r = chat.requests
    for k, t in enumerate(s["time"]):
        inside = (steps["time"] > t - span) & (steps["time"] <= t)
        queries = steps["queries"][inside].sum()
        expected = steps["hits"][inside].sum() / queries if queries else np.nan
        np.testing.assert_allclose(s["hit_rate"][k], expected)
        assert s["evictions_per_s"][k] == pytest.approx(steps["removed"][inside].sum() / min(span, t - start))
        last = np.flatnonzero(steps["time"] <= t)[-1]
        assert s["usage"][k] == pytest.approx(1 - steps["free"][last] / 1499)
        assert s["waiting"][k] == steps["waiting"][last]
        came = r["first_token"][(r["first_token"] > t - span) & (r["first_token"] <= t)]
        asked = r["arrive"][(r["first_token"] > t - span) & (r["first_token"] <= t)]
        np.testing.assert_allclose(s["ttft_p95"][k], np.percentile(came - asked, 95) if len(came) else np.nan)


def test_ranges(chat: Run) -> None:
    s = series(chat)
    for name in ("hit_rate", "hit_rate_last_1000", "hit_rate_total", "usage", "cached_share"):
        known = s[name][np.isfinite(s[name])]
        assert len(known) > 100
        assert (known >= 0).all()
        assert (known <= 1).all()
    assert (np.diff(s["time"]) > 0).all()
    assert (np.diff(s["preemptions"]) >= 0).all()
    assert np.nanmin(s["ttft_p95"]) > 0


def test_a_rate_over_the_last_thousand_requests() -> None:
    """The engine's log line forgets: after 1,000 strangers an early hit no longer counts."""
    strangers = [request(f"s{i}", 5, 1, 10 + i * 0.02) for i in range(1100)]
    result = run([request("a", [shared(41)], 1, 0), request("b", [shared(41)], 1, 1), *strangers], time=VIRTUAL, num_gpu_blocks=9000)
    s = series(result, points=200)
    early = np.searchsorted(s["time"], 5.0)
    assert s["hit_rate_last_1000"][early] == pytest.approx(40 / 82)
    assert s["hit_rate_last_1000"][-1] == 0.0
    assert s["hit_rate_total"][-1] == pytest.approx(40 / (82 + 1100 * 5))


def test_no_traffic_is_not_zero() -> None:
    """Between two bursts there is no hit rate and no time to first token; with caching off there never is a rate."""
    requests = [request("a", [shared(41)], 2, 0), request("b", [shared(41)], 2, 1), request("c", [shared(41)], 2, 100)]
    s = series(run(requests, time=VIRTUAL), points=100, window=5.0)
    idle = (s["time"] > 8) & (s["time"] < 99)
    assert idle.sum() > 80
    assert np.isnan(s["hit_rate"][idle]).all()
    assert np.isnan(s["ttft_p95"][idle]).all()
    assert (s["hit_rate_total"][idle] == 40 / 82).all()
    assert (s["evictions_per_s"][idle] == 0).all()
    off = series(run(requests, time=VIRTUAL, enable_prefix_caching=False))
    assert np.isnan(off["hit_rate"]).all()
    assert np.isnan(off["hit_rate_total"]).all()


def test_of_nothing() -> None:
    s = series(replay(nothing(), EngineSettings(num_gpu_blocks=10)), points=7)
    assert set(s) == NAMES
    assert all(v.shape == (7,) and np.isnan(v).all() for v in s.values())


@pytest.mark.parametrize("seed", range(40))
def test_any_run(seed: int) -> None:
    """Step mode, stalls, aborts, one single step: no warning, no infinity, no negative time to first token."""
    result = replayed(draw_case(Random(3000 + seed)))
    for points, window in ((1, None), (60, None), (11, 0.5)):
        s = series(result, points, window)
        assert set(s) == NAMES
        assert not any(np.isinf(v).any() for v in s.values())
        assert not (s["ttft_p95"] < 0).any()
        assert (s["usage"] >= 0).all()
        assert (s["usage"] <= 1).all()
