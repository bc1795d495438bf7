"""Figure 2 of the PagedAttention paper from the shipped lengths, and the formulas against counting every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import InputError
from simkv.planning.kv_waste import PAPER, benchmark_sample, contiguous, figure_2, paged
from simkv.workload.bundled import bundled
from simkv.workload.source import FILE_LIMIT, Source
from simkv.workload.traces.sharegpt_lengths import first_pairs

FIGURE_2 = {
    "max, buddy": 16.7,
    "pow2, buddy": 26.1,
    "oracle, buddy": 41.9,
    "oracle, exact": 60.0,
    "paged, block 8": 99.0,
    "paged, block 16": 97.9,
    "paged, block 32": 95.7,
    "paged, block 64": 91.5,
    "paged, block 128": 84.2,
    "paged, block 256": 71.8,
}
"""Per cent of held memory that holds token states, computed once by an independent script from the same lengths."""

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray]:
    return benchmark_sample(*first_pairs(Source.from_path(bundled()["sharegpt_lengths"], FILE_LIMIT)))


def test_the_sample_is_the_benchmarks(sample: tuple[np.ndarray, np.ndarray]) -> None:
    prompt, output = sample
    assert len(prompt) == 1779
    assert (round(float(prompt.mean()), 1), round(float(output.mean()), 1)) == (110.5, 298.8)


def test_figure_2(sample: tuple[np.ndarray, np.ndarray]) -> None:
    bars = {bar.scheme: bar for bar in figure_2(*sample, max_model_len=2048)}
    assert {name: round(100 * bar.states, 2) for name, bar in bars.items()} == pytest.approx(FIGURE_2, abs=0.1)
    for bar in bars.values():
        assert bar.states + bar.reserved + bar.internal + bar.rounding == pytest.approx(1)
    published = {name: bar.paper for name, bar in bars.items() if bar.paper}
    assert published == {"max, buddy": 0.204, "pow2, buddy": 0.268, "oracle, buddy": 0.382, "paged, block 16": 0.963}
    assert all(abs(bars[name].states - share) < 0.04 for name, share in published.items()), "within four points of the paper"


def test_smaller_blocks_waste_less(sample: tuple[np.ndarray, np.ndarray]) -> None:
    shares = [paged(*sample, size).states for size in (1, 2, 8, 16, 64, 256, 2048)]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LENGTHS, st.sampled_from(["max", "pow2", "oracle"]), st.booleans())
def test_contiguous_counted_step_by_step(lengths: list[tuple[int, int]], reservation: str, buddy: bool) -> None:
    held = states = reserved = internal = 0
    for p, o in lengths:
        asked = {"max": 128, "pow2": p + (1 << (o - 1).bit_length()), "oracle": p + o}[reservation]
        piece = 1 << (asked - 1).bit_length() if buddy else asked
        for t in range(o):
            held, states, reserved, internal = held + piece, states + p + t, reserved + o - t, internal + asked - p - o
    got = contiguous(*map(np.array, zip(*lengths, strict=True)), reservation, buddy=buddy, max_model_len=128)
    expected = (states, reserved, internal, held - states - reserved - internal)
    assert (got.states, got.reserved, got.internal, got.rounding) == pytest.approx([x / held for x in expected])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LENGTHS, st.integers(1, 80))
def test_paged_counted_step_by_step(lengths: list[tuple[int, int]], size: int) -> None:
    held = states = internal = 0
    for p, o in lengths:
        for t in range(o):
            blocks = -(-(p + t) // size) * size
            held, states, internal = held + blocks, states + p + t, internal + max(0, blocks - p - o)
    got = paged(*map(np.array, zip(*lengths, strict=True)), size)
    assert (got.states, got.internal, got.rounding) == pytest.approx([states / held, internal / held, 0])
    assert got.states + got.reserved + got.internal == pytest.approx(1)


def test_what_cannot_be_worked_out_says_why() -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(InputError, match="no request is left"):
        paged(none, none, 16)
    with pytest.raises(InputError, match="a request has 300 tokens"):
        contiguous(np.array([200]), np.array([100]), "max", buddy=True, max_model_len=256)
    with pytest.raises(InputError, match="without prompt or output"):
        paged(np.array([3]), np.array([0]), 16)


def test_the_papers_figures() -> None:
    assert PAPER == {"max": 0.204, "pow2": 0.268, "oracle": 0.382, "paged 16": 0.963}
