"""Prompts as routers compare them, held against the same questions asked token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.engine.vllm.chain import chain_keys
from simkv.fleet.routing.sequence import PIECE, common_units, keys_of, sequences, unit_id
from simkv.workload.workload import OUTPUT_SEED, RUN, Workload, merge_runs, run_offsets

Token = tuple[int, int]


def workload_of(prompts: list[list[tuple[int, int, int]]], words: list[int], outputs: int = 3) -> Workload:
    """Requests made of runs; a run with a negative seed names words of ``words``."""
    runs, owner = [], []
    for i, prompt in enumerate(prompts):
        for run in [*prompt, (OUTPUT_SEED + i, 0, outputs)]:
            runs.append(run)
            owner.append(i)
    merged, of = merge_runs(np.array(runs, RUN), np.array(owner, np.int64))
    n = len(prompts)
    return Workload(
        "made",
        "made",
        np.zeros(n),
        np.array([sum(r[2] for r in p) for p in prompts], np.int32),
        np.full(n, outputs, np.int32),
        run_offsets(of, n),
        merged,
        np.array(words, np.int32),
    )


def spelled(prompt: list[tuple[int, int, int]], words: list[int]) -> list[Token]:
    """The same prompt unit by unit: (-1, word) or (content, offset)."""
    out: list[Token] = []
    for seed, start, n in prompt:
        for k in range(start, start + n):
            out.append((seed, k) if seed >= 0 else (-1, words[-1 - seed + k]))
    return out


def agree(a: list[Token], b: list[Token], pos: int, limit: int) -> int:
    n = 0
    while n < limit and pos + n < min(len(a), len(b)) and a[pos + n] == b[pos + n]:
        n += 1
    return n


WORDS = [5, 6, 7, 5, 6, 7, 8, 9, 5, 6, 7, 5, 6, 9, 1, 2]
synthetic = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 4))
explicit = st.tuples(st.integers(-8, -1), st.just(0), st.integers(1, 5))
prompts = st.lists(st.lists(st.one_of(synthetic, explicit), min_size=0, max_size=5), min_size=2, max_size=4)


@settings(max_examples=150, deadline=None)
@given(prompts, st.integers(0, 6), st.integers(0, 20))
def test_common_prefix_and_units(made: list[list[tuple[int, int, int]]], pos: int, limit: int) -> None:
    w = workload_of(made, WORDS)
    s = sequences(w)
    plain = [spelled(p, WORDS) for p in made]
    ids = {}
    for i, a in enumerate(plain):
        for j, b in enumerate(plain):
            assert common_units(s, i, j, pos, limit) == agree(a, b, pos, limit)
        for k, unit in enumerate(a):
            assert ids.setdefault(unit_id(s, i, k), unit) == unit
            ids[unit_id(s, i, k)] = unit
    assert len(ids) == len({unit for a in plain for unit in a})


@settings(max_examples=150, deadline=None)
@given(prompts, st.integers(1, 6))
def test_chunk_keys_are_equal_where_the_content_is(made: list[list[tuple[int, int, int]]], chunk: int) -> None:
    w = workload_of(made, WORDS)
    s = sequences(w)
    plain = [spelled(p, WORDS) for p in made]
    full = [keys_of(s, i, chunk) for i in range(len(made))]
    every = [keys_of(s, i, chunk, partial=True) for i in range(len(made))]
    for i, a in enumerate(plain):
        assert len(full[i]) == len(a) // chunk
        assert len(every[i]) == -(-len(a) // chunk)
        assert (every[i][: len(full[i])] == full[i]).all()
        for j, b in enumerate(plain):
            same = int((full[i][: min(len(full[i]), len(full[j]))] == full[j][: min(len(full[i]), len(full[j]))]).sum())
            assert same == agree(a, b, 0, 1 << 30) // chunk
            assert (len(every[i]) == len(every[j]) and bool((every[i] == every[j]).all())) == (a == b)


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_full_chunks_have_the_keys_of_the_engines_blocks(chunk: int) -> None:
    w = workload_of([[(1, 0, 7), (-1, 0, 6)], [(2, 5, 4), (1, 0, 9)]], WORDS, outputs=1)
    for i in range(2):
        n = int(w.num_prompt[i]) // chunk
        assert (keys_of(sequences(w), i, chunk) == chain_keys(w, i, chunk)[:n]).all()


def test_the_answer_is_not_part_of_it() -> None:
    w = workload_of([[(1, 0, 4)], [(1, 0, 4), (OUTPUT_SEED, 0, 3)]], WORDS)
    assert common_units(sequences(w), 0, 1) == 4
    s = sequences(w)
    assert list(s.prompts["units"]) == [4, 7]
    assert s.pieces.dtype.itemsize == PIECE.itemsize
    assert sequences(w) is s


def test_no_requests() -> None:
    assert len(sequences(workload_of([], [])).prompts) == 0
