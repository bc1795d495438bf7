"""The case `make bench` measures SGLang with ends as SGLang's own scheduler ended it."""

from __future__ import annotations

import pytest

from simkv.bench.radix import GROUPS, OWN, RECORDED, RECORDED_CACHED, REQUESTS, SHARED, TIGHT, prompts, tree_alone
from simkv.replay import replay
from simkv.settings import SglangSettings


@pytest.mark.parametrize("page", [1, 16])
def test_totals_are_those_of_the_real_scheduler(page: int) -> None:
    settings = SglangSettings(page_size=page, max_total_tokens=TIGHT, max_running_requests=64, chunked_prefill_size=8192)
    summary = replay(prompts(), settings, events=False).summary()
    assert {name: summary[name] for name in RECORDED} == RECORDED
    assert (summary["stored_blocks"] - summary["removed_blocks"]) * page == RECORDED_CACHED[page]


@pytest.mark.parametrize("pool", [TIGHT, 800_000])
def test_the_cache_alone_finds_the_same_share(pool: int) -> None:
    cache = tree_alone(prompts(), 1, pool)
    cache.run(0, REQUESTS)
    cache.check_integrity()
    assert int(cache.operations["matched"].sum()) == (REQUESTS - GROUPS) * SHARED
    written = (SHARED + OWN) * REQUESTS - (REQUESTS - GROUPS) * SHARED
    assert int(cache.counters.stored) == written
    assert (int(cache.counters.removed) > 0) == (pool < written)
