"""How long a step takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.engine import step_time
from simkv.engine.step_time_layout import LINEAR, ROOFLINE, STEP_INDEX, STEP_TIME
from simkv.errors import SettingsError
from simkv.hardware import find_gpu, find_model
from simkv.settings import EngineSettings
from simkv.workload.generators import generate


def test_one_decode_of_8b_on_an_h100_is_weights_over_bandwidth() -> None:
    model, gpu = find_model("Llama-3.1-8B"), find_gpu("H100-SXM5-80GB")
    seconds = step_time.roofline(EngineSettings()).seconds([(1000, 1)], 1)
    least = (model.weight_bytes - 2 * model.embed_params) / gpu.bandwidth
    assert least == pytest.approx(0.00448, rel=0.01)
    assert least < seconds < 1.6 * least


def test_a_full_prefill_is_bound_by_arithmetic() -> None:
    model, gpu = find_model("Llama-3.1-8B"), find_gpu("H100-SXM5-80GB")
    seconds = step_time.roofline(EngineSettings()).seconds([(0, 8192)])
    least = 2 * model.params_in_layers * 8192 / gpu.bf16_flops
    assert least < seconds < 2.5 * least


def test_what_makes_a_step_longer() -> None:
    base = step_time.roofline(EngineSettings())
    decode = [(4000, 1)] * 64
    assert base.seconds([(8000, 1)] * 64) > base.seconds(decode)
    assert step_time.roofline(EngineSettings(gpu="L40S")).seconds(decode) > base.seconds(decode)
    assert step_time.roofline(EngineSettings(kv_cache_dtype="fp8")).seconds(decode) < base.seconds(decode)
    two = step_time.roofline(EngineSettings(tensor_parallel_size=2))
    assert two.seconds([(0, 8192)]) < base.seconds([(0, 8192)])
    assert 0.4 < two.seconds(decode) / base.seconds(decode) < 1


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 8192)), min_size=1, max_size=20), st.integers(1, 1000))
def test_more_work_never_takes_less_time(rows: list[tuple[int, int]], more: int) -> None:
    t = step_time.roofline(EngineSettings())
    assert t.seconds(rows) <= t.seconds([*rows, (0, more)])
    computed, n = rows[0]
    assert t.seconds(rows) <= t.seconds([(computed + more, n), *rows[1:]])


def test_mixtures_and_windows_are_told() -> None:
    said = " ".join(step_time.roofline(EngineSettings(model="gpt-oss-120b")).assumptions)
    assert "All experts" in said
    assert "window" in said
    assert step_time.roofline(EngineSettings(model="gpt-oss-120b")).kv_bytes_per_token == 36_864


def test_records() -> None:
    linear = step_time.linear(0.01, 1e-5, 1e-4)
    assert linear.seconds([(0, 100), (5, 1)], 1) == pytest.approx(0.01 + 100e-5 + 1e-4)
    assert linear.seconds([]) == 0
    record = linear.record()
    assert record.dtype == STEP_TIME
    assert (record["mode"][0], record["a"][0], record["b"][0], record["c"][0]) == (LINEAR, 0.01, 1e-5, 1e-4)
    assert step_time.step_index().record()["mode"][0] == STEP_INDEX
    assert step_time.step_index().seconds([(0, 5)]) == 0
    record = step_time.roofline(EngineSettings()).record()
    assert record["mode"][0] == ROOFLINE
    assert all(np.isfinite(record[name][0]) for name in STEP_TIME.names or ())
    assert record["peak_flops"][0] > 0 < record["bandwidth"][0]


def test_the_workload_says_its_own_rule() -> None:
    w = generate("open_ended", requests=1)
    assert step_time.for_workload(w, EngineSettings()).kind == ROOFLINE
    assert step_time.for_workload(replace(w, step_time={"mode": "step"}), EngineSettings()).kind == STEP_INDEX
    own = step_time.for_workload(replace(w, step_time={"mode": "virtual", "a": 1, "b": 2, "c": 3}), EngineSettings())
    assert (own.kind, own.a, own.b, own.c) == (LINEAR, 1.0, 2.0, 3.0)
    with pytest.raises(SettingsError, match=r"time\.mode"):
        step_time.for_workload(replace(w, step_time={"mode": "lunar"}), EngineSettings())


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "x"])
def test_bad_coefficients(bad: float) -> None:
    with pytest.raises(SettingsError, match=r"step_time\.b"):
        step_time.linear(0.1, bad, 0.0)
