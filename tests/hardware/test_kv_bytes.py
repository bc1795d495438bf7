"""KV bytes per token and groups against published figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.hardware import blocks_for, find_gpu, find_model, gpus, groups_of, kv_bytes_per_token, longest_request, models
from simkv.hardware.kv_bytes import kv_heads_per_rank
from simkv.settings import EngineSettings, KVGroup

PUBLISHED = {
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Qwen2.5-7B": 57_344,
    "Qwen2.5-72B": 327_680,
    "Qwen3-8B": 147_456,
    "Qwen3-32B": 262_144,
    "Qwen3-30B-A3B": 98_304,
    "Qwen3-235B-A22B": 192_512,
    "Mixtral-8x7B": 131_072,
    "DeepSeek-V3": 70_272,
    "DeepSeek-R1": 70_272,
    "Kimi-K2-Instruct": 70_272,
    "DeepSeek-V2-Lite": 31_104,
    "gpt-oss-20b": 49_152,
    "gpt-oss-120b": 73_728,
    "Gemma-3-27B (text)": 507_904,
    "Gemma-2-9B": 344_064,
    "Phi-4": 204_800,
    "GLM-4.5": 376_832,
    "Qwen3-Next-80B-A3B": 24_576,
    "Llama-4-Scout-17B-16E": 196_608,
    "SmolLM2-135M": 23_040,
}
FULL_LAYERS_ONLY = {"gpt-oss-20b": 24_576, "gpt-oss-120b": 36_864, "Gemma-3-27B (text)": 81_920, "Gemma-2-9B": 172_032}


@pytest.mark.parametrize("name", PUBLISHED)
def test_bytes_per_token(name: str) -> None:
    assert kv_bytes_per_token(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", FULL_LAYERS_ONLY)
def test_bytes_per_token_of_the_full_layers(name: str) -> None:
    assert kv_bytes_per_token(name, layers="full") == FULL_LAYERS_ONLY[name]
    assert kv_bytes_per_token(name, layers="full") + kv_bytes_per_token(name, layers="sliding") == kv_bytes_per_token(name)


@pytest.mark.parametrize("name", models())
def test_fp8_is_exactly_half_and_the_table_is_whole(name: str) -> None:
    model = find_model(name)
    assert 2 * kv_bytes_per_token(model, "fp8") == kv_bytes_per_token(model, "auto") == kv_bytes_per_token(model, "bfloat16")
    assert sum(n for _, n in model.layer_kinds) == model.layers
    assert model.weight_bytes > 0
    assert model.params_in_layers > 0


def test_heads_are_split_then_replicated() -> None:
    """Qwen3-235B-A22B has 4 KV heads: 8 GPUs keep one each, twice over; MLA's vector is whole everywhere."""
    assert [kv_bytes_per_token("Qwen3-235B-A22B", "auto", tp) for tp in (1, 2, 4, 8)] == [192_512, 96_256, 48_128, 48_128]
    assert [kv_bytes_per_token("DeepSeek-V3", "auto", tp) for tp in (1, 8)] == [70_272, 70_272]


def test_tensor_parallel_size_must_fit_the_heads() -> None:
    with pytest.raises(SettingsError, match="divisors of the 64 attention heads"):
        kv_heads_per_rank(find_model("Llama-3.1-70B"), 3)
    with pytest.raises(SettingsError, match="10 KV heads of Phi-4"):
        kv_heads_per_rank(find_model("Phi-4"), 4)
    assert kv_heads_per_rank(find_model("Llama-3.1-70B"), 16) == 1


def test_mlp_width_from_the_parameter_count() -> None:
    widths = {"Llama-3.1-8B": 14_336, "Llama-3.1-70B": 28_672, "Qwen2.5-7B": 18_944, "Phi-4": 17_920, "SmolLM2-135M": 1536}
    assert {name: find_model(name).intermediate for name in widths} == widths
    assert find_model("Gemma-2-9B").intermediate == pytest.approx(14_336, abs=2)


def test_names_are_forgiving_and_errors_helpful() -> None:
    assert find_model("meta-llama/llama-3.1-8b-instruct").name == "Llama-3.1-8B"
    assert find_model("gemma-3-27b").name == "Gemma-3-27B (text)"
    assert find_gpu("h100-sxm5-80gb").name == "H100-SXM5-80GB"
    with pytest.raises(SettingsError, match=r"Did you mean .*Llama-3\.1-8B"):
        find_model("Llama-3-8B")
    with pytest.raises(SettingsError, match="simkv gpus"):
        find_gpu("abacus")


def test_gpu_memory_is_not_the_number_on_the_box() -> None:
    for gpu in gpus().values():
        assert gpu.total_bytes <= gpu.driver_bytes
        assert gpu.confidence in ("high", "medium", "low")
    assert find_gpu("H100-SXM5-80GB").total_bytes == int(79.10 * 2**30)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("Llama-3.1-8B", [("full", None, 32)]),
        ("Mistral-7B-v0.1", [("sliding", 4096, 32)]),
        ("gpt-oss-120b", [("sliding", 128, 18), ("full", None, 18)]),
        ("Gemma-3-27B", [("sliding", 1024, 9)] * 4 + [("sliding", 1024, 8)] * 2 + [("full", None, 10)]),
        ("Gemma-3-4B", [("sliding", 1024, 5)] * 5 + [("sliding", 1024, 4), ("full", None, 5)]),
    ],
)
def test_groups_of_a_model(name: str, groups: list[tuple[str, int | None, int]]) -> None:
    made = groups_of(name)
    assert [(g.type, g.window, g.layers) for g in made] == groups
    assert EngineSettings.from_mapping({"model": name, "hybrid": "model"}).hybrid == made
    assert EngineSettings().with_pairs(["hybrid=model", f"model={name}"]).hybrid == made


@pytest.mark.parametrize("name", ["Qwen3-Next-80B-A3B", "Llama-4-Scout-17B-16E"])
def test_groups_that_are_not_modelled(name: str) -> None:
    with pytest.raises(SettingsError, match="not modelled"):
        groups_of(name)


GROUPS = st.lists(
    st.one_of(
        st.builds(KVGroup, st.just("full"), st.none(), st.sampled_from([4, 8, 16])),
        st.builds(KVGroup, st.just("sliding"), st.integers(1, 300), st.sampled_from([4, 8, 16])),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@given(GROUPS, st.integers(1, 500), st.integers(1, 64), st.integers(1, 4000))
def test_longest_request_is_the_longest(groups: tuple[KVGroup, ...], blocks: int, in_flight: int, limit: int) -> None:
    most = longest_request(groups, blocks, in_flight, limit)
    assert 0 <= most <= limit
    assert most == 0 or blocks_for(groups, most, in_flight) <= blocks
    assert most == limit or blocks_for(groups, most + 1, in_flight) > blocks


def test_a_sliding_group_stops_growing() -> None:
    groups = (KVGroup("full", None, 16), KVGroup("sliding", 128, 16))
    assert blocks_for(groups, 100, 1 << 20) == 7 + 7 + 1
    assert blocks_for(groups, 100_000, 512) == 6250 + 40 + 1
