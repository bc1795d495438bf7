"""Hit rates of the Mooncake conversation trace that others computed independently, with the engine's own rules.

Prefix cache of vLLM, requests one after another, blocks of 512 tokens, generated tokens left out (the independent
computations had none): token hit rate of the whole trace and of its second half.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simkv.engine.step_time import step_index
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_workload
from simkv.workload.workload import Workload


@pytest.fixture(scope="module")
def one_after_another() -> Workload:
    w = read_workload(bundled()["mooncake_conversation"])
    n = len(w)
    return dataclasses.replace(w, after=np.arange(-1, n - 1, dtype=np.int32), arrive=np.zeros(n), num_output=np.ones(n, np.int32))


@pytest.mark.parametrize(
    ("usable", "whole", "second_half"),
    [
        (1_024, 0.0461, 0.0475),
        (4_096, 0.0936, 0.0920),
        (8_192, 0.1923, 0.1980),
        (16_384, 0.2763, 0.2868),
        (32_768, 0.3464, 0.3609),
        (400_000, 0.3734, 0.3978),
    ],
)
def test_hit_rate(one_after_another: Workload, usable: int, whole: float, second_half: float) -> None:
    w = one_after_another
    settings = EngineSettings(block_size=512, num_gpu_blocks=usable + 1, max_num_seqs=8, max_num_batched_tokens=8192)
    run = replay(w, settings, step_index(), events=False)
    half = len(w) // 2
    hit, prompt = run.requests["hit"].astype(np.int64), w.num_prompt.astype(np.int64)
    assert run.counters["finished"] == len(w)
    assert round(float(hit.sum() / prompt.sum()), 4) == whole
    assert round(float(hit[half:].sum() / prompt[half:].sum()), 4) == second_half


def test_a_pool_that_never_evicts() -> None:
    """With everything the engine does at once (concurrency, generated tokens) the ceiling is the same."""
    w = read_workload(bundled()["mooncake_conversation"])
    run = replay(w, EngineSettings(block_size=512, num_gpu_blocks=400_000), events=False)
    assert run.counters["removed"] == 0
    assert round(run.counters["hits"] / run.counters["queries"], 4) == 0.3734
