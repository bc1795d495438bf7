"""What SGLang fills in at start-up, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from simkv.engine.sglang_settings import INPUT_MARGIN, resolve
from simkv.errors import SettingsError
from simkv.hardware.gpus import gpus
from simkv.hardware.sglang_capacity import chunked_prefill_size, mem_fraction_static, sglang_capacity
from simkv.settings import SglangSettings, settings_from
from simkv.workload.generators import generate

WORKLOAD = generate("shared_system_prompt", requests=5, seed=1)
LONGEST = int((WORKLOAD.num_prompt + WORKLOAD.num_output).max())


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "A100-SXM4-40GB", "H200-SXM-141GB"])
def test_the_parts_of_the_memory_add_up(gpu: str) -> None:
    c = sglang_capacity(SglangSettings(gpu=gpu, page_size=16))
    assert sum(size for _, size in c.waterfall[1:]) == c.waterfall[0][1]
    assert c.kv_tokens == (c.num_gpu_blocks - 1) * 16
    assert 0 <= c.available_kv_bytes - c.kv_tokens * c.bytes_per_token < 16 * c.bytes_per_token


def test_defaults_by_gpu_memory() -> None:
    """arg_groups/memory_hook.py: 8192 from 60 to 160 GiB; an H100 reserves 512 + 1.5 x 8192 + 128 + 512 + 58 x 8 MiB."""
    h100 = gpus()["H100-SXM5-80GB"]
    assert chunked_prefill_size(h100) == 8192
    total = h100.driver_bytes / 2**20
    assert mem_fraction_static(h100, 1, 8192, 16384) == round((total - (512 + 12288 + 128 + 512 + 58 * 8)) / total, 3)


def test_a_bigger_share_gives_a_bigger_pool() -> None:
    small, big = (sglang_capacity(SglangSettings(mem_fraction_static=f)) for f in (0.6, 0.9))
    assert 0 < small.kv_tokens < big.kv_tokens


def test_no_room_for_the_model_is_said() -> None:
    with pytest.raises(SettingsError, match="leaves room for a KV pool"):
        sglang_capacity(SglangSettings(model="Llama-3.1-70B", gpu="H100-SXM5-80GB"))


def test_lengths_follow_the_workload() -> None:
    r = resolve(SglangSettings(max_total_tokens=100_000), WORKLOAD)
    assert r.context_length == LONGEST + INPUT_MARGIN + 1
    assert r.max_input_len == r.context_length - INPUT_MARGIN > LONGEST
    assert r.max_running == 4096
    assert r.num_gpu_blocks == 100_001
    assert resolve(SglangSettings(max_total_tokens=1000, context_length=900), WORKLOAD).max_running == 500


def test_a_context_larger_than_the_pool_is_said() -> None:
    r = resolve(SglangSettings(max_total_tokens=500, context_length=4000), WORKLOAD)
    assert r.max_input_len == 500 - INPUT_MARGIN
    assert any("fewer than context_length" in note for note in r.notes)


def test_chunking_can_be_off() -> None:
    assert resolve(SglangSettings(max_total_tokens=9000, chunked_prefill_size=-1), WORKLOAD).chunked_prefill_size is None


def test_retraction_by_priority_needs_priorities_unless_it_was_recorded_so() -> None:
    asked = SglangSettings(max_total_tokens=9000, retraction_policy="priority")
    with pytest.raises(SettingsError, match="retraction_policy"):
        resolve(asked, WORKLOAD)
    recorded = dataclasses.replace(WORKLOAD, engine={"engine": "sglang", "max_total_tokens": 9000, "retraction_policy": "priority"})
    assert resolve(SglangSettings(), recorded).retraction_policy == "priority"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"chunked_prefill_size": 0}, "chunked_prefill_size"),
        ({"page_size": 64, "max_total_tokens": 63}, "max_total_tokens"),
        ({"radix_eviction_policy_config": {"threshold": 5}}, "radix_eviction_policy_config"),
        ({"radix_eviction_policy": "tlru", "radix_eviction_policy_config": "{"}, "radix_eviction_policy_config"),
        ({"radix_eviction_policy": "tlru", "radix_eviction_policy_config": {"threshold": -1}}, "radix_eviction_policy_config"),
        ({"block_size": 16}, "block_size"),
        ({"schedule_policy": "priority"}, "enable_priority_scheduling=true"),
    ],
)
def test_what_sglang_has_not_is_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(SettingsError, match=field):
        settings_from({"engine": "sglang", **values})


def test_parameters_of_a_policy_come_as_json_or_as_a_mapping() -> None:
    for given in ({"threshold": 4096}, '{"threshold": 4096}'):
        s = settings_from({"engine": "sglang", "radix_eviction_policy": "tlru", "radix_eviction_policy_config": given})
        assert isinstance(s, SglangSettings)
        assert s.policy_parameters() == {"threshold": 4096}
