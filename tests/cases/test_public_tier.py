"""Questions people asked in public about host tiers and shared stores, with the right answers (tests/cases/tier.json)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.diagnosis.break_even import LOAD, faster
from simkv.diagnosis.hashes import collision_probability, shared_root
from simkv.diagnosis.host_tier import NATIVE, Tier, Use, device_serves, stored_in_vain
from simkv.engine.profiles import profile
from simkv.events.digests import Digests, none_hash
from simkv.hardware import GB, GIB, kv_bytes_per_token
from simkv.hardware.host_size import host_size
from simkv.metrics.tiers import TierRates, tier_rates
from simkv.replay import replay
from simkv.settings import EngineSettings, Settings, SglangSettings
from tests.engine.hand import VIRTUAL, request, shared, workload

CASES = {c["id"]: c for c in json.loads((Path(__file__).parent / "tier.json").read_text(encoding="utf-8"))["cases"]}
NOT_HERE: dict[str, str] = {}
"""Cases that cannot be expressed, with the reason: none."""


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def test_every_case_is_covered_or_excused() -> None:
    asked = {f"P-{n.upper().replace('_', '-')}" for n in ("apc_12", "apc_22", "met_09", "rad_03", "tie_01", "tie_02", "tie_03")}
    assert asked | set(NOT_HERE) == set(CASES)


def test_a_second_engine_never_hits_the_shared_store() -> None:
    """P-APC-12: with a root drawn per process no digest agrees, with a common PYTHONHASHSEED every one does."""
    _, right = case("P-APC-12")
    w = workload([request("a", [shared(64)])])
    rng = random.Random(12)
    mine, other = (Digests(w, 16, root=rng.randbytes(32)).of(0) for _ in range(2))
    assert len(mine) == 4
    assert len(set(mine) & set(other)) == right["shared_hits"]
    seeded = [Digests(w, 16, root=none_hash("sha256", "0")).of(0) for _ in range(2)]
    assert seeded[0] == seeded[1] != Digests(w, 16).of(0)
    alike, why = shared_root(profile("0.22"), None)
    assert not alike
    assert "PYTHONHASHSEED" in why
    assert "fixed root" in why
    assert shared_root(profile("0.22"), "0")[0]
    assert shared_root(profile("0.32"), None)[0]


def test_a_short_content_hash_serves_the_wrong_picture() -> None:
    """P-APC-22: the birthday bound."""
    given, right = case("P-APC-22")
    found = [collision_probability(given["hash_bits"], n) for n in given["images"]]
    assert found == pytest.approx(right["collision_probability"], abs=0.002)
    assert collision_probability(64, 10**6) < 1e-7
    assert collision_probability(3, 9) == 1.0


def test_local_and_external_rates_are_not_added() -> None:
    """P-MET-09: two denominators; only the combined rate is a share of the prompt."""
    given, right = case("P-MET-09")
    prompt, local, external = given["prompt"], given["local_hit"], given["external_hit"]
    rates = tier_rates(prompt, local, prompt - local, external)
    assert [rates.host_of_all, rates.host] == right["external_rate"]
    assert rates.combined == pytest.approx(right["combined"])
    assert rates.device is not None
    assert rates.host is not None
    assert rates.device + rates.host > 1
    assert tier_rates(0, 0, 0, 0) == TierRates(None, None, None, None)


@pytest.mark.parametrize("settings", [EngineSettings(), SglangSettings(max_total_tokens=100_000)], ids=["vllm", "sglang"])
def test_hit_rate_per_round_of_growing_chats(settings: Settings) -> None:
    """P-RAD-03: each round sends everything before and as much again, and nothing is evicted."""
    given, right = case("P-RAD-03")
    rounds, clients, grow = given["rounds"], given["clients"], 160
    requests = [
        request(f"c{c}r{r}", [shared((r + 1) * grow, seed=c + 1)], 1, arrive=100 * r + c) for r in range(rounds) for c in range(clients)
    ]
    w = workload(requests, time=VIRTUAL, block_size=16, num_gpu_blocks=clients * rounds * 20, max_model_len=4096)
    run = replay(w, settings, events=False)
    assert run.counters["removed"] == 0
    hit, prompt = run.requests["hit"].reshape(rounds, clients), w.num_prompt.reshape(rounds, clients)
    found = hit.sum(axis=1) / prompt.sum(axis=1)
    assert found.tolist() == pytest.approx(right["values"], abs=0.002)
    assert found.tolist() == pytest.approx([k / (k + 1) for k in range(rounds)])


def test_a_store_full_of_hits_changes_nothing() -> None:
    """P-TIE-01: what the device has need not be loaded."""
    given, right = case("P-TIE-01")
    need, said = device_serves(given["total"], given["gpu_cached"], given["store_hit"])
    assert need == right["need_to_load"]
    assert said is not None
    assert "GPU's prefix cache already serves" in said
    assert "after the GPU has evicted" in said


def test_how_many_tokens_a_host_pool_holds() -> None:
    """P-TIE-02: bytes per token and GPU, per chunk, and tokens per host memory."""
    given, right = case("P-TIE-02")
    layers_kv, chunk, width = given["tensor_shape"][:2], given["tensor_shape"][2], given["tensor_shape"][3]
    assert int(np.prod(layers_kv)) * width * given["dtype_bytes"] == right["bytes_per_token_per_rank"]
    per_token = kv_bytes_per_token(given["model"], "auto", given["tp"])
    assert per_token == right["bytes_per_token_per_rank"]
    assert per_token * chunk == right["bytes_per_chunk"]
    settings = EngineSettings(model=given["model"], tensor_parallel_size=given["tp"], block_size=16)
    whole = given["host_gb_per_rank"] * GB * given["tp"] / GIB
    size = host_size(settings, whole, chunk // 16)
    assert size.chunk_bytes == right["bytes_per_chunk"] * given["tp"]
    assert size.native_tokens == pytest.approx(61_000, rel=0.01)
    assert size.simple_tokens == pytest.approx(61_000, rel=0.01)


def test_is_loading_faster_than_computing() -> None:
    """P-TIE-03: over two links, from the counters a server exports; and stores without loads are a useless tier."""
    given, right = case("P-TIE-03")
    found = [faster(given["bytes_per_token"], rate, given["prefill_tok_s"]) for rate in given["links"].values()]
    assert [rate for rate, _ in found] == pytest.approx(right["load_tok_s"], rel=0.01)
    assert [f"{'load' if which == LOAD else 'recompute'} wins" for _, which in found] == right["verdict"]
    tier = Tier(NATIVE, 100, 16, 1000, 8192)
    assert "loaded none" in str(stored_in_vain(tier, Use(40, 0, 0, 0, 0, 100)))
    assert stored_in_vain(tier, Use(40, 0, 16, 0, 0, 100)) is None
