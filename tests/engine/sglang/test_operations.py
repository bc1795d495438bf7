"""Cache operations alone, in any order: what must hold whatever the policy, page size and pool."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.conformance.sglang_ops import read_operations
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.layout import EVICTION_POLICIES
from simkv.engine.sglang.operations import SglangCache

TOKENS = st.lists(st.integers(1, 3), max_size=24)
OPTIONS = st.sampled_from([{}, {}, {"extra_key": ""}, {"extra_key": "a"}, {"cache_salt": "s"}, {"extra_key": "a", "cache_salt": "s"}])
NAMES = st.sampled_from("abc")
OPERATION = st.one_of(
    st.tuples(st.just("insert"), NAMES, TOKENS, OPTIONS),
    st.tuples(st.just("match"), NAMES, TOKENS, OPTIONS),
    st.tuples(st.just("evict"), st.integers(0, 40)),
)


def cache_of(ops: list[list[Any]], config: SglangConfig) -> SglangCache:
    contents, table, content_of, names = read_operations(ops, "drawn")
    return SglangCache(contents, config, table, content_of, len(names))


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    ops=st.lists(OPERATION, max_size=30),
    page=st.sampled_from([1, 2, 3, 8]),
    capacity=st.integers(8, 80),
    policy=st.sampled_from(EVICTION_POLICIES),
)
def test_any_operations(ops: list[tuple[Any, ...]], page: int, capacity: int, policy: str) -> None:
    listed = [list(op) for op in ops]
    cache = cache_of(listed, SglangConfig(page_size=page, capacity=capacity, radix_eviction_policy=policy))
    inserted: list[tuple[dict[str, str], list[int]]] = []
    for i, op in enumerate(listed):
        before = int(cache.counters.cached) * page
        cache.run(i, i + 1)
        cache.check_integrity()
        done, cached = cache.operations[i], int(cache.counters.cached) * page
        if op[0] == "evict":
            assert done.got == before - cached
            assert done.got >= min(op[1], before)
            continue
        known = max((common(op[2], other) for options, other in inserted if options == op[3]), default=0)
        assert done.matched <= known // page * page
        assert done.matched % page == 0
        if op[0] == "match":
            assert cached == before
        elif not done.failed:
            assert done.matched + done.new == len(op[2]) // page * page
            inserted.append((op[3], op[2]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kept=st.lists(st.integers(1, 3), min_size=8, max_size=16), others=st.lists(TOKENS, max_size=12), page=st.sampled_from([1, 4]))
def test_what_is_locked_stays(kept: list[int], others: list[list[int]], page: int) -> None:
    ops: list[list[Any]] = [["insert", "k", kept], ["lock", "k"]]
    ops += [["insert", "o", tokens] for tokens in others]
    ops += [["evict", 1000], ["match", "m", kept], ["unlock", "k"], ["evict", 1000], ["match", "m", kept]]
    cache = cache_of(ops, SglangConfig(page_size=page, capacity=40))
    cache.run(0, len(ops))
    cache.check_integrity()
    assert cache.operations[-4].matched == len(kept) // page * page
    assert cache.operations[-1].matched == 0


def test_whole_leaves_go_and_a_lookup_splits() -> None:
    ops: list[list[Any]] = [["insert", "a", [*range(10)]], ["match", "p", [0, 1, 2, 3, 9]], ["evict", 1], ["match", "a", [*range(10)]]]
    cache = cache_of(ops, SglangConfig(capacity=20))
    cache.run(0, len(ops))
    assert cache.operations["matched"].tolist() == [0, 4, 0, 4]
    assert cache.operations[2].got == 6


def test_the_arena_is_swept_when_it_is_full() -> None:
    rng = np.random.default_rng(1)
    ops = [["insert", "x", rng.integers(1, 4, rng.integers(1, 30)).tolist()] for _ in range(400)]
    cache = cache_of(ops, SglangConfig(capacity=40))
    halves = set()
    for i in range(len(ops)):
        cache.run(i, i + 1)
        halves.add(int(cache.counters.arena_half))
        cache.check_integrity()
    assert halves == {0, 1}
