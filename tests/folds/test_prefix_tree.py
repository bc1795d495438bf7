"""The tree of cached prefixes against what the engines themselves hold."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.diagnosis.keys import request_keys
from simkv.events.folds.pool import PoolFold
from simkv.events.folds.prefix_tree import PrefixTree, prefix_tree
from simkv.replay import Run, replay
from simkv.settings import EngineSettings, SglangSettings
from simkv.workload.generators import generate


def tree_at(run: Run, turn: int) -> PrefixTree:
    assert run.log is not None
    size = run.resolved.block_size
    return prefix_tree(PoolFold(run.log).seek(turn), lambda req: request_keys(run, req), size)


RUNS = {
    "vllm": EngineSettings(block_size=16, num_gpu_blocks=400, max_num_seqs=6),
    "sglang, page 1": SglangSettings(page_size=1, max_total_tokens=6400, max_running_requests=6, chunked_prefill_size=512),
    "sglang, page 16": SglangSettings(page_size=16, max_total_tokens=6400, max_running_requests=6, chunked_prefill_size=512),
}


@pytest.fixture(scope="module", params=list(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    workload = generate("few_shot_branching", requests=40, seed=3)
    return replay(workload, RUNS[request.param])


def test_every_cached_token_stands_on_one_edge(run: Run) -> None:
    for turn in np.linspace(0, len(run.steps) - 1, 12).astype(int).tolist():
        tree = tree_at(run, turn)
        assert tree.tokens.sum() == run.steps["cached"][turn] * run.resolved.block_size


def test_edges_hang_together(run: Run) -> None:
    tree = tree_at(run, len(run.steps) - 1)
    assert len(tree) > 1
    for e in range(len(tree)):
        p = int(tree.parent[e])
        assert p < e
        if p >= 0:
            assert tree.start[e] == tree.start[p] + tree.tokens[p]
            assert not tree.leaf[p]
        else:
            assert tree.orphan[e] == (tree.start[e] > 0)
    branches = np.bincount(tree.parent[tree.parent >= 0], minlength=len(tree))
    assert not np.any(branches == 1), "an edge with one child would be one edge"
    assert tree.below[tree.parent < 0].sum() == tree.tokens.sum()


def test_a_shared_beginning_is_one_edge_with_its_branches_below() -> None:
    """Three examples after one system prompt, nothing evicted: one root edge of the common tokens."""
    workload = generate("few_shot_branching", requests=30, seed=1)
    run = replay(workload, SglangSettings(page_size=1, max_total_tokens=200_000))
    tree = tree_at(run, len(run.steps) - 1)
    roots = np.flatnonzero(tree.parent < 0)
    assert len(roots) == 1
    assert np.count_nonzero(tree.parent == roots[0]) > 1
    shared = int(tree.tokens[roots[0]])
    keys = [request_keys(run, r) for r in range(len(workload))]
    assert all(np.array_equal(k[:shared], keys[0][:shared]) for k in keys)
    assert any(k[shared] != keys[0][shared] for k in keys), "the edge ends where the prompts part"


def test_an_empty_cache_is_an_empty_tree() -> None:
    run = replay(generate("few_shot_branching", requests=2, seed=1), EngineSettings(num_gpu_blocks=400, enable_prefix_caching=False))
    assert len(tree_at(run, len(run.steps) - 1)) == 0
