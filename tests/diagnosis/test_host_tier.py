"""Every warning at its edge: it speaks, and one step away it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simkv.diagnosis import host_tier as h
from simkv.diagnosis.break_even import break_even
from simkv.hardware import find_gpu
from simkv.hardware.transfer import host_link
from simkv.settings import EngineSettings

NATIVE = h.Tier(h.NATIVE, chunks=100, block_size=16, gpu_blocks=500, max_num_batched_tokens=8192)
SIMPLE = replace(NATIVE, connector=h.SIMPLE)
QUIET = h.Use(stored=50, evicted=0, loaded=160, refused=0, hits=10, queries=1000)


def prompts(*lengths: int) -> h.I4:
    return np.array(lengths, np.int32)


def test_a_good_tier_needs_no_warning() -> None:
    found = break_even(EngineSettings(), host_link(find_gpu("H100-SXM5-80GB")), longest=2048)
    assert h.warnings(NATIVE, prompts(1001, 1203, 999), QUIET, found) == ()
    assert h.warnings(NATIVE, prompts(), QUIET, found) == ()


def test_a_host_shorter_than_a_prompt() -> None:
    assert h.shorter_than_a_prompt(NATIVE, prompts(1615)) is None
    said = h.shorter_than_a_prompt(NATIVE, prompts(1616, 20, 3200))
    assert said is not None
    assert said.startswith("2 prompts of up to 3,200 tokens are longer than the host tier (1,600 tokens)")
    assert "never stored" in said
    assert "at least 2.0 times" in said


def test_small_steps_make_small_offers() -> None:
    said = h.shorter_than_a_prompt(replace(NATIVE, max_num_batched_tokens=512), prompts(1700))
    assert said is not None
    assert said.startswith("1 prompt of up to 1,700 tokens is longer")
    assert "pushes out its own beginning" in said
    assert "pushes out" in str(h.shorter_than_a_prompt(SIMPLE, prompts(1700)))


def test_lazy_mode_needs_a_host_as_large_as_the_pool() -> None:
    assert h.lazy_without_end(SIMPLE) is None
    lazy = replace(SIMPLE, lazy=True)
    assert "never idles" in str(h.lazy_without_end(lazy))
    assert h.lazy_without_end(replace(lazy, chunks=500)) is None


def test_a_link_slower_than_computing() -> None:
    slow = break_even(EngineSettings(), host_link(find_gpu("H100-SXM5-80GB"), 1e9), longest=8192)
    fast = break_even(EngineSettings(), host_link(find_gpu("H100-SXM5-80GB")), longest=8192)
    assert "at no length" in str(h.slower_than_computing(slow, prompts(5000)))
    assert "only from 272 tokens on" in str(h.slower_than_computing(fast, prompts(100, 271, 5000)))
    assert h.slower_than_computing(fast, prompts(100, 272, 5000)) is None
    assert h.slower_than_computing(None, prompts(1)) is None


@pytest.mark.parametrize(
    ("tier", "use", "word"),
    [
        (NATIVE, replace(QUIET, loaded=0), "still on the GPU"),
        (NATIVE, replace(QUIET, loaded=0, hits=0), "nothing came again"),
        (SIMPLE, replace(QUIET, loaded=0, hits=0, evicted=3), "no prompt's beginning"),
    ],
)
def test_stores_without_loads(tier: h.Tier, use: h.Use, word: str) -> None:
    said = h.stored_in_vain(tier, use)
    assert said is not None
    assert said.startswith("The host tier stored 50 chunks and loaded none")
    assert word in said
    assert h.stored_in_vain(tier, replace(use, loaded=1)) is None
    assert h.stored_in_vain(tier, replace(use, stored=0)) is None


def test_what_the_device_already_has() -> None:
    need, said = h.device_serves(1000, 900, 1000)
    assert (need, said) == (100, None)
    need, said = h.device_serves(1000, 1000, 900)
    assert need == 0
    assert "already serves 1,000 of 1,000" in str(said)
    assert h.device_serves(1000, 1000, 0) == (0, None)


def test_refused_offers_and_heads() -> None:
    assert h.refused_offers(NATIVE, QUIET) is None
    assert "refused 1 offer:" in str(h.refused_offers(NATIVE, replace(QUIET, refused=1)))
    evicting = replace(QUIET, evicted=4)
    assert h.heads_first(NATIVE, evicting) is None
    assert h.heads_first(SIMPLE, QUIET) is None
    assert "evicted 4 blocks" in str(h.heads_first(SIMPLE, evicting))


def test_coarse_chunks() -> None:
    coarse = replace(NATIVE, blocks_per_chunk=4)
    said = h.below_a_chunk(coarse, prompts(63, 64))
    assert said is not None
    assert "A chunk has 64 tokens" in said
    assert "1 prompt is shorter" in said
    assert "shorter" not in str(h.below_a_chunk(coarse, prompts(64)))
    assert h.below_a_chunk(NATIVE, prompts(1)) is None
    assert h.below_a_chunk(replace(coarse, connector=h.SIMPLE), prompts(1)) is None


def test_prompts_that_end_with_a_block() -> None:
    assert h.aligned_prompts(NATIVE, prompts(17, 33)) is None
    assert "1 prompt of 2 end" in str(h.aligned_prompts(NATIVE, prompts(16, 33)))
    assert h.aligned_prompts(SIMPLE, prompts(16)) is None
    assert h.aligned_prompts(NATIVE, prompts(16, *[17] * 10)) is None


def test_the_gravest_comes_first() -> None:
    lazy = replace(SIMPLE, lazy=True)
    said = h.warnings(lazy, prompts(1700), h.Use(5, 4, 0, 1, 0, 1700))
    assert [s.split()[0] for s in said] == ["1", "Lazy", "The", "The", "The"]
