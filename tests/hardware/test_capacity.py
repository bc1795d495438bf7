"""The capacity sum: its parts, its refusals, its sentences."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.hardware import GIB, capacity, find_gpu, gpus, models
from simkv.hardware.batch_defaults import batch_defaults
from simkv.settings import EngineSettings


def test_the_waterfall_adds_up() -> None:
    c = capacity(EngineSettings(), max_model_len=8192)
    (_, total), *parts = c.waterfall
    assert total == sum(n for _, n in parts) == find_gpu("H100-SXM5-80GB").total_bytes
    assert c.requested_bytes == math.ceil(total * 0.92)
    assert c.num_gpu_blocks == c.available_kv_bytes // c.bytes_per_block
    assert c.bytes_per_block == 16 * 131_072
    assert c.kv_tokens == c.num_gpu_blocks * 16
    assert c.max_concurrency == c.num_gpu_blocks / 512
    assert all(s.endswith(".") for s in c.assumptions)


def test_a_pool_of_an_older_version() -> None:
    """0.18: share 0.9, and CUDA graphs on top of the budget instead of inside it."""
    old, new = capacity(EngineSettings(engine_version="0.18")), capacity(EngineSettings(engine_version="0.20"))
    assert (old.gpu_memory_utilization, new.gpu_memory_utilization) == (0.9, 0.92)
    assert old.cuda_graph_bytes == 0 < capacity(EngineSettings(engine_version="0.22")).cuda_graph_bytes
    assert any("on top of the budget" in s for s in old.assumptions)


def test_length_of_a_request_is_not_known() -> None:
    c = capacity(EngineSettings())
    assert c.max_concurrency is None
    assert c.kv_tokens > 0


def test_a_model_that_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match=r"weights take 141\.11 GB \(131\.42 GiB\).*tensor_parallel_size=4"):
        capacity(EngineSettings(model="Llama-3.1-70B"))
    assert capacity(EngineSettings(model="Llama-3.1-70B", tensor_parallel_size=4)).num_gpu_blocks > 1000


def test_activations_alone_can_be_too_much() -> None:
    settings = EngineSettings(model="Llama-3.1-8B", gpu="L4", max_num_batched_tokens=1 << 20)
    with pytest.raises(SettingsError, match="lower max_num_batched_tokens or max_num_seqs"):
        capacity(settings)


def test_memory_for_less_than_two_blocks() -> None:
    with pytest.raises(SettingsError, match="at least two blocks"):
        capacity(EngineSettings(), available_kv_bytes=16 * 131_072)


def test_without_chunked_prefill_a_longer_context_costs_memory() -> None:
    """vLLM 10517: capacity is not monotone in the context length."""
    sizes = [capacity(EngineSettings(enable_chunked_prefill=False), max_model_len=n).num_gpu_blocks for n in (4096, 16_384, 65_536)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [("B200-SXM-180GB", 16384, 1024), ("MI300X", 16384, 1024), ("H100-SXM5-80GB", 8192, 1024), ("H200-SXM-141GB", 8192, 1024),
     ("A100-SXM4-80GB", 2048, 256), ("A100-PCIe-80GB", 2048, 256), ("L40S", 2048, 256), ("RTX-4090", 2048, 256)],
)  # fmt: skip
def test_batch_defaults(gpu: str, tokens: int, seqs: int) -> None:
    assert batch_defaults(find_gpu(gpu), 8192, True, None, None) == (tokens, seqs)


def test_batch_defaults_give_way() -> None:
    h100 = find_gpu("H100-SXM5-80GB")
    assert batch_defaults(h100, 100_000, False, None, None) == (100_000, 1024)
    assert batch_defaults(h100, 100, True, 4, None) == (400, 4)
    assert batch_defaults(h100, 8192, True, None, 64) == (64, 64)
    assert batch_defaults(h100, 8192, True, 7, 64) == (64, 7)


@given(
    st.sampled_from(sorted(models())),
    st.sampled_from(sorted(gpus())),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["auto", "fp8"]),
    st.floats(0.05, 1.0),
)
def test_every_combination_fits_or_says_why(model: str, gpu: str, tp: int, dtype: str, share: float) -> None:
    settings = EngineSettings(model=model, gpu=gpu, tensor_parallel_size=tp, kv_cache_dtype=dtype, gpu_memory_utilization=share)
    try:
        c = capacity(settings, max_model_len=4096)
    except SettingsError as error:
        refused = error.field
    else:
        refused = None
    if refused is not None:
        assert refused in ("model", "tensor_parallel_size")
        return
    assert c.num_gpu_blocks >= 2
    assert 0 < c.available_kv_bytes <= c.requested_bytes <= c.total_bytes + 1
    assert c.total_bytes > 20 * GIB
