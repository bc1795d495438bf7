"""Memory questions people asked in public, with the right answers (tests/cases/capacity.json)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.engine.resolve import resolve
from simkv.errors import SettingsError
from simkv.hardware import GB, GIB, Capacity, Model, blocks_for, capacity, find_gpu, find_model, kv_bytes_per_token, longest_request
from simkv.hardware.kv_bytes import layer_bytes_per_token
from simkv.hardware.memory import overhead
from simkv.settings import EngineSettings
from simkv.workload.generators import generate

CASES = {c["id"]: c for c in json.loads((Path(__file__).parents[1] / "cases" / "capacity.json").read_text(encoding="utf-8"))["cases"]}

NOT_HERE = {
    "P-CAP-13": "layers of one model with different KV heads and head sizes; the model table has one shape a model",
    "P-CAP-15": "reading a start-up log of an old hybrid release; belongs to the log reader",
    "P-CAP-17": "start-up of the sampler runs out of memory; belongs to the diagnosis of start-up errors",
    "P-CAP-20": "two servers on one GPU; the capacity sum assumes the GPU is the engine's own",
    "P-MET-12": "which metric to trust; belongs to the metric dictionary",
    "P-RAD-05": "how many requests run in SGLang; in tests/cases/test_public_radix.py",
}
HERE = [
    "P-CAP-01", "P-CAP-02", "P-CAP-03", "P-CAP-04", "P-CAP-05", "P-CAP-06", "P-CAP-07", "P-CAP-08", "P-CAP-09", "P-CAP-10", "P-CAP-11",
    "P-CAP-12", "P-CAP-14", "P-CAP-16", "P-CAP-18", "P-CAP-19", "P-PRE-03", "P-PRE-04", "P-TIE-02", "P-QUA-01",
]  # fmt: skip


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def sized(model: str, gib: float, max_model_len: int | None = None, **settings: Any) -> Capacity:
    """The pool of a server whose log says that ``gib`` GiB are left for the KV cache."""
    return capacity(EngineSettings(model=model, **settings), max_model_len=max_model_len, available_kv_bytes=int(gib * GIB))


def assert_in_log_interval(tokens: int, gib: float, model: str, **settings: Any) -> None:
    """A log prints GiB with two digits; the token count beside it must be possible for some value that rounds to them."""
    low, high = (sized(model, gib + d, **settings).kv_tokens for d in (-0.005, 0.005))
    assert low <= tokens <= high


def test_every_case_is_covered_or_excused() -> None:
    assert sorted([*HERE, *NOT_HERE]) == sorted(CASES)


def test_which_context_fits_on_one_consumer_gpu() -> None:
    given, right = case("P-CAP-01")
    c = sized("Llama-3.1-8B", given["available_kv_gib"], given["max_model_len"])
    assert c.bytes_per_token == right["bytes_per_token"]
    assert abs(c.num_gpu_blocks - right["num_gpu_blocks"]) <= 3
    assert c.max_concurrency == pytest.approx(right["max_concurrency_x"], abs=0.01)
    assert_in_log_interval(right["num_gpu_blocks"] * 16, given["available_kv_gib"], "Llama-3.1-8B")


def test_a_longer_context_is_refused() -> None:
    given, right = case("P-CAP-02")
    gib = given["total_gpu_gib"] * given["util"] - given["peak_torch_gib"] - given["non_torch_gib"]
    assert gib == pytest.approx(right["available_kv_gib"], abs=0.01)
    c = sized("Llama-3.1-8B", gib, given["max_model_len"])
    assert abs(c.num_gpu_blocks - right["num_gpu_blocks"]) <= 6
    assert c.max_concurrency == pytest.approx(right["max_concurrency_x"], abs=0.01)
    settings = EngineSettings(num_gpu_blocks=c.num_gpu_blocks, max_model_len=given["max_model_len"])
    with pytest.raises(SettingsError, match=f"estimated maximum for {c.num_gpu_blocks - 1} usable blocks"):
        resolve(settings, generate("open_ended", requests=1))


def test_activations_of_the_two_published_profiles() -> None:
    """vLLM issue 10517: torch peaks of 17.06 and 17.98 GiB with 20,000 and 29,000 tokens in one batch, weights 14.99 GiB."""
    for tokens, peak in ((20_000, 17.06), (29_000, 17.98)):
        rest = overhead(find_model("Llama-3.1-8B"), 1, batch_tokens=tokens, max_num_seqs=0, cuda_graphs=False)
        assert rest.activations / GIB == pytest.approx(peak - 14.9888, rel=0.02)


def test_fp8_doubles_the_tokens() -> None:
    given, right = case("P-CAP-03")
    pools = {}
    for name, dtype in (("bf16", "bfloat16"), ("fp8", "fp8")):
        pools[name] = sized("Qwen3-0.6B", given["available_kv_gib"], given["max_model_len"], kv_cache_dtype=dtype)
        assert pools[name].bytes_per_token == right[name]["bytes_per_token"]
    assert abs(pools["bf16"].kv_tokens - right["bf16"]["kv_tokens"]) <= 48
    assert_in_log_interval(right["bf16"]["kv_tokens"], given["available_kv_gib"], "Qwen3-0.6B")
    assert right["bf16"]["kv_tokens"] / given["max_model_len"] == pytest.approx(right["bf16"]["max_concurrency_x"], abs=0.005)
    assert pools["bf16"].max_concurrency == pytest.approx(right["bf16"]["max_concurrency_x"], abs=0.02)
    assert pools["fp8"].num_gpu_blocks - 2 * pools["bf16"].num_gpu_blocks in (0, 1)


def test_the_estimate_comes_near_a_real_server() -> None:
    """The same server, estimated without its log: A100 80GB, vLLM of September 2025, 69.66 GiB for the KV cache."""
    c = capacity(EngineSettings(model="Qwen3-0.6B", gpu="A100-SXM4-80GB", engine_version="0.10", max_model_len=4096))
    assert c.available_kv_bytes / GIB == pytest.approx(case("P-CAP-03")[0]["available_kv_gib"], abs=0.3)


def test_pinned_memory_is_exact() -> None:
    given, right = case("P-CAP-04")
    c = sized("Qwen2.5-7B", given["kv_cache_memory_gib"], given["max_model_len"], gpu="GB200")
    assert (c.bytes_per_token, c.num_gpu_blocks, c.kv_tokens) == (right["bytes_per_token"], right["num_gpu_blocks"], right["kv_tokens"])
    assert c.max_concurrency == pytest.approx(right["max_concurrency_x"], abs=0.005)


def test_the_estimated_maximum_counts_fp8() -> None:
    given, right = case("P-CAP-05")
    a, b = given["run_a"], given["run_b"]
    c = sized("Qwen3-30B-A3B", a["available_kv_gib"], a["max_model_len"], kv_cache_dtype="fp8")
    assert c.bytes_per_token == right["bytes_per_token"]
    assert abs(c.kv_tokens - right["run_a"]["kv_tokens"]) <= 64
    assert_in_log_interval(right["run_a"]["kv_tokens"], a["available_kv_gib"], "Qwen3-30B-A3B", kv_cache_dtype="fp8")
    assert c.max_concurrency == pytest.approx(right["run_a"]["max_concurrency_x"], abs=0.01)
    groups = EngineSettings().groups
    needed = blocks_for(groups, b["max_model_len"], 0) * c.bytes_per_block
    assert needed / GIB == pytest.approx(right["run_b"]["needed_gib"], abs=0.01)
    blocks = sized("Qwen3-30B-A3B", b["available_kv_gib"], kv_cache_dtype="fp8").num_gpu_blocks
    assert 122_080 <= longest_request(groups, blocks, 0, b["max_model_len"]) <= 122_115


def test_a_hybrid_model_sized_both_ways() -> None:
    given, right = case("P-CAP-06")
    name = "gpt-oss-120b"
    assert layer_bytes_per_token(find_model(name)) == right["per_layer_bytes"]
    assert kv_bytes_per_token(name, layers="full") == right["full_layers_only_bytes"]
    one = sized(name, given["available_kv_gib"], 8192, max_num_batched_tokens=2048)
    assert one.bytes_per_token == right["pool_bytes_per_token"]
    assert one.kv_tokens == pytest.approx(right["logged_kv_tokens"], rel=0.001)
    settings = EngineSettings.from_mapping({"model": name, "hybrid": "model", "max_num_batched_tokens": 2048})
    two = capacity(settings, max_model_len=8192, available_kv_bytes=int(given["available_kv_gib"] * GIB))
    assert two.bytes_per_block * 2 == one.bytes_per_block
    assert one.max_concurrency is not None
    assert two.max_concurrency is not None
    assert two.max_concurrency > 1.2 * one.max_concurrency


def test_pipeline_stages_are_charged_for_all_layers() -> None:
    """Pipeline parallelism itself is not modelled: the sum per stage is layers times bytes per layer."""
    given, right = case("P-CAP-07")
    layer = layer_bytes_per_token(find_model("Qwen3-30B-A3B"))
    needs = [given["max_model_len"] * layer * layers / GIB for layers in (given["layers"], *given["layer_split"])]
    assert needs == [right["engine_message"]["needed_gib"], *right["per_stage_needed_gib"]]
    available = given["available_kv_gib_smallest_stage"] * GIB
    assert available / (layer * 48) == pytest.approx(right["engine_message"]["estimated_max_len"], abs=32)
    assert available / (layer * 16) == pytest.approx(104_200, abs=32)


def llama_2_7b() -> Model:
    """Not in the table: 32 layers of 32 KV heads, 6,738,415,616 parameters."""
    return dataclasses.replace(
        find_model("Mistral-7B-v0.3"), kv_heads=32, kv_elements=2 * 32 * 128, params_total=6_738_415_616, params_active=6_738_415_616,
        embed_params=131_072_000, vocab=32_000, weight_bytes=13_476_831_232,
    )  # fmt: skip


def test_blocks_of_llama_2() -> None:
    given, right = case("P-CAP-08")
    model = llama_2_7b()
    per_block = kv_bytes_per_token(model) * given["block_size"]
    assert per_block == right["a"]["bytes_per_block_mib"] * 2**20
    assert right["a"]["num_gpu_blocks"] * per_block / GIB == pytest.approx(right["a"]["kv_gib"], abs=0.01)
    rest = overhead(model, 1, batch_tokens=4096, max_num_seqs=256, cuda_graphs=False)
    estimate = (find_gpu("A100-SXM4-80GB").total_bytes * given["util"] - rest.total) / per_block
    assert estimate == pytest.approx(right["a"]["num_gpu_blocks"], rel=0.02)
    per_block = kv_bytes_per_token("Llama-3.1-70B", "auto", 4) * given["block_size"]
    assert per_block == right["b"]["bytes_per_block_per_rank_mib"] * 2**20
    assert right["b"]["num_gpu_blocks"] * per_block / GIB == pytest.approx(right["b"]["kv_gib_per_rank"], abs=0.01)


def test_where_the_memory_went() -> None:
    given, right = case("P-CAP-09")
    budget = given["total_gpu_gib"] * given["util"]
    left = budget - given["weights_gib"] - given["non_torch_gib"] - given["activation_peak_gib"]
    assert budget == pytest.approx(right["budget_gib"], abs=0.02)
    assert left == pytest.approx(right["available_kv_gib"], abs=0.02)
    assert sized("Llama-3.1-8B", left).kv_tokens == pytest.approx(436_550, rel=0.001)


def test_blocks_to_concurrency() -> None:
    given, right = case("P-CAP-10")
    per_request = blocks_for(EngineSettings().groups, given["max_model_len"], 0)
    assert given["num_gpu_blocks"] / per_request == pytest.approx(right["max_concurrency_x"], abs=0.005)
    assert given["num_gpu_blocks"] * 16 * kv_bytes_per_token("Llama-3.1-70B") / GIB == pytest.approx(right["kv_gib"], abs=0.005)


def test_an_override_that_can_never_serve() -> None:
    given, right = case("P-CAP-11")
    c = sized("Llama-3.2-1B", given["available_kv_gib"], given["max_model_len"], kv_cache_dtype="fp8")
    assert c.bytes_per_token == given["bytes_per_token"]
    assert abs(c.num_gpu_blocks - right["profiled_blocks"]) <= 20
    assert c.max_concurrency == pytest.approx(right["profiled_concurrency_x"], abs=0.01)
    settings = EngineSettings(num_gpu_blocks=given["num_gpu_blocks_override"], max_model_len=given["max_model_len"])
    with pytest.raises(SettingsError, match="needs 8192"):
        resolve(settings, generate("open_ended", requests=1))


def test_kv_heads_not_hidden_size() -> None:
    given, right = case("P-CAP-12")
    per_token = kv_bytes_per_token("Qwen2.5-7B", "float16")
    assert per_token == right["right_bytes_per_token"]
    assert per_token * given["context"] / GIB == pytest.approx(right["right_gib_per_request"], abs=0.001)


def test_two_engines_on_the_same_box() -> None:
    given, right = case("P-CAP-14")
    c = sized("Qwen3-235B-A22B", given["vllm"]["available_kv_gib"], tensor_parallel_size=4)
    assert c.bytes_per_token == right["bytes_per_token_per_rank"]
    assert c.kv_tokens == right["vllm_tokens_upper"]
    assert right["vllm_logged_tokens"] <= c.kv_tokens <= right["vllm_logged_tokens"] * 1.015
    assert given["sglang"]["tokens"] * c.bytes_per_token / 2 / GIB == pytest.approx(right["sglang_k_gib"], abs=0.01)


def test_the_smallest_rank_decides() -> None:
    given, right = case("P-CAP-16")
    shape = find_model("Qwen3-32B")
    model = dataclasses.replace(shape, layers=48, kv_layers=48, layer_kinds=(("full", 48),))
    per_token = kv_bytes_per_token(model, "auto", given["tp"])
    assert per_token == right["bytes_per_token_per_rank"]
    tokens = [int(gib * GIB) // (per_token * 16) * 16 for gib in given["ranks_available_kv_gib"]]
    assert all(abs(t - r) <= 64 for t, r in zip(tokens, right["tokens_per_rank"], strict=True))
    assert min(tokens) < given["max_model_len"]


def test_256_sequences_are_not_336_gb() -> None:
    given, right = case("P-CAP-18")
    per_token = kv_bytes_per_token("Llama-3.1-70B")
    assert per_token == right["bytes_per_token"]
    assert per_token * given["tokens"] == right["per_sequence_bytes"]
    total = per_token * given["tokens"] * given["sequences"]
    assert (round(total / GB, 1), total / GIB) == (right["total_gb"], right["total_gib"])


def test_what_latent_attention_saves() -> None:
    given, right = case("P-CAP-19")
    model = find_model("DeepSeek-V2-Lite")
    heads, size = given["attention_heads"], given["padded_head_dim"]
    padded = dataclasses.replace(model, mla_rank=None, kv_heads=heads, head_dim=size, kv_elements=2 * heads * size)
    assert kv_bytes_per_token(padded) == right["padded_mha"]["bytes_per_token"]
    blocks = int(given["available_kv_gib"] * GIB) // (kv_bytes_per_token(padded) * given["block_size"])
    assert blocks == right["padded_mha"]["num_gpu_blocks"]
    assert blocks / (given["max_model_len"] / 16) == pytest.approx(right["padded_mha"]["max_concurrency_x"], abs=0.005)
    c = sized("DeepSeek-V2-Lite", given["available_kv_gib"])
    assert c.bytes_per_token == right["mla"]["bytes_per_token"]
    assert c.kv_tokens == pytest.approx(1_222_700, rel=0.001)
    assert kv_bytes_per_token(padded) / c.bytes_per_token == pytest.approx(right["ratio"], abs=0.01)


def test_a_request_that_can_never_be_scheduled() -> None:
    given, _ = case("P-PRE-03")
    need = blocks_for(EngineSettings().groups, given["request_tokens"], 0)
    assert need == 125 > given["num_gpu_blocks_override"] - 1
    settings = EngineSettings(num_gpu_blocks=given["num_gpu_blocks_override"], max_model_len=given["max_model_len"])
    with pytest.raises(SettingsError, match="at most 1584"):
        resolve(settings, generate("open_ended", requests=1))


def test_more_seats_than_memory() -> None:
    given, right = case("P-PRE-04")
    gib = given["gpu_total_gib"] * given["util"] - given["weights_gib"] - given["other_gib"]
    tokens = sized("Llama-3.1-8B", gib).kv_tokens
    assert tokens == pytest.approx(right["kv_tokens"], rel=0.01)
    assert tokens // given["max_num_seqs"] == pytest.approx(right["tokens_per_seat"], rel=0.01)
    assert tokens // given["p95_total_tokens"] == pytest.approx(right["safe_max_num_seqs"], abs=1)


def test_bytes_of_an_offloaded_chunk() -> None:
    given, right = case("P-TIE-02")
    per_token = kv_bytes_per_token("Qwen2.5-72B", "auto", given["tp"])
    assert per_token == right["bytes_per_token_per_rank"]
    assert per_token * given["chunk_tokens"] == right["bytes_per_chunk"]
    assert given["host_gb_per_rank"] * GB / per_token == pytest.approx(61_000, rel=0.01)


def test_fp8_pool_budget() -> None:
    """Qwen3-1.7B is not in the table; its KV shape (28 layers, 8 heads of 128) is that of Qwen3-0.6B."""
    given, right = case("P-QUA-01")
    tokens = given["budget_gib"] * GIB / kv_bytes_per_token("Qwen3-0.6B")
    assert tokens == pytest.approx(given["bf16_tokens"], rel=0.001)
    assert kv_bytes_per_token("Qwen3-0.6B") == right["ratio"] * kv_bytes_per_token("Qwen3-0.6B", "fp8")
