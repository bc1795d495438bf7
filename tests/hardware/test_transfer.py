"""Host memory and links: sizes as vLLM counts them, times as a queue gives them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.hardware import find_gpu, find_model, gpus
from simkv.hardware.host_size import host_size
from simkv.hardware.transfer import JOB_S, Link, finish_times, host_link, native_chunk_bytes, one_copy_in_host, simple_blocks
from simkv.settings import EngineSettings


def test_a_chunk_is_rounded_up_to_a_page() -> None:
    assert native_chunk_bytes(2 * 2**20) == 2 * 2**20
    assert native_chunk_bytes(128) == 4096
    assert native_chunk_bytes(3000, 2, 3) == 20480
    assert native_chunk_bytes(3000, 2, 3, one_copy=True) == 12288


def test_sizes_of_llama_8b() -> None:
    size = host_size(EngineSettings(), 64)
    assert (size.native_chunks, size.chunk_bytes, size.native_tokens) == (32768, 2 * 2**20, 524_288)
    assert (size.simple_blocks, size.simple_tokens) == (32768, 524_272)
    assert host_size(EngineSettings(tensor_parallel_size=4), 64).native_tokens == 524_288
    assert host_size(EngineSettings(), 64, 4).native_chunks == 8192
    assert host_size(EngineSettings(), 0.001).native_chunks == 0
    assert "524,288 tokens in 32,768 chunks" in size.sentence


def test_latent_vectors_are_kept_once_by_the_native_tier_only() -> None:
    model = find_model("DeepSeek-V3")
    assert one_copy_in_host(model, 8)
    assert not one_copy_in_host(model, 1)
    assert not one_copy_in_host(find_model("Llama-3.1-8B"), 8)
    size = host_size(EngineSettings(model="DeepSeek-V3", tensor_parallel_size=8, gpu="H200-SXM-141GB"), 80)
    assert size.native_tokens > 7 * size.simple_tokens
    assert any("once" in said for said in size.assumptions)


def test_a_simple_pool_has_at_least_its_null_block() -> None:
    assert simple_blocks(1, 2**21) == 1
    assert simple_blocks(10 * 2**21 + 5, 2**21) == 10
    assert simple_blocks(10 * 2**21, 2**21, 4) == 2


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(2, 10_000), st.integers(1, 1 << 40), st.integers(1, 1 << 24), st.integers(1, 8))
def test_simple_blocks_do_not_depend_on_the_gpu_pool(gpu_blocks: int, host: int, block: int, world: int) -> None:
    """The engine's formula, with the GPU's pool in it."""
    assert simple_blocks(host, block, world) == max(1, gpu_blocks * (host // world) // (gpu_blocks * block))


def test_every_gpu_has_a_link() -> None:
    for gpu in gpus().values():
        link = host_link(gpu)
        assert gpu.pcie is not None
        assert 0.5 * gpu.pcie < link.bandwidth < gpu.pcie
        assert link.name.startswith("PCIe ")
    assert any("NVLink-C2C" in said for said in host_link(find_gpu("GB200")).assumptions)


def test_a_given_bandwidth_is_taken_as_it_is() -> None:
    assert host_link(find_gpu("L4"), 3e9).bandwidth == 3e9
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="bandwidth"):
            host_link(find_gpu("L4"), wrong)


def test_seconds_are_bytes_over_bandwidth_and_a_fixed_part() -> None:
    link = Link("x", 1e9)
    assert link.seconds(5e8) == pytest.approx(0.5 + JOB_S)
    assert link.seconds(5e8, 10) == pytest.approx(0.5 + 10 * JOB_S)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1 << 32)), min_size=1, max_size=30))
def test_transfers_of_one_direction_follow_each_other(jobs: list[tuple[float, int]]) -> None:
    link = Link("x", 1e9, job_s=0.01)
    jobs.sort(key=lambda j: j[0])
    free, wanted = 0.0, []
    for at, size in jobs:
        free = max(free, at) + link.seconds(size)
        wanted.append(free)
    found = finish_times(np.array([at for at, _ in jobs]), np.array([size for _, size in jobs], np.float64), link)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize(("gib", "chunk", "field"), [(0, 1, "host size"), (float("nan"), 1, "host size"), (1, 0, "blocks_per_chunk")])
def test_wrong_sizes_are_refused(gib: float, chunk: int, field: str) -> None:
    with pytest.raises(SettingsError, match=field):
        host_size(EngineSettings(), gib, chunk)
