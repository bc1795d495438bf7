"""Any two runs of the same requests can be compared: drawn settings of vLLM, hybrid pools, salts, resets, and the other engines."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest

from simkv.commands.compare import describe
from simkv.comparison import Comparison, Side
from simkv.comparison.causes import found
from simkv.comparison.export import as_csv, as_mapping
from simkv.comparison.report import html_report
from simkv.engine.resolve import resolve
from simkv.errors import SimkvError
from simkv.replay import Run, replay
from simkv.settings import ContiguousSettings, Settings, SglangSettings, V0Settings
from tests.engine import cases

ENGINES = ("vllm", "vllm", "near", "sglang", "contiguous", "vllm-v0")


def other(case: cases.Case, kind: str, r: Random) -> Run | None:
    """The case's requests under other settings; ``None`` if the engine refuses them."""
    s = case.settings
    if kind == "vllm":
        return cases.replayed(dataclasses.replace(case, settings=resolve(cases._settings(r), case.workload, check_pool=False)))
    if kind == "near":
        return cases.replayed(
            dataclasses.replace(case, settings=dataclasses.replace(s, num_gpu_blocks=s.num_gpu_blocks + r.choice([0, 1, 5])))
        )
    tokens = max(s.num_gpu_blocks * s.block_size, 200)
    made: Settings = SglangSettings(max_total_tokens=tokens, page_size=r.choice([1, 4, 16]))
    if kind == "contiguous":
        made = ContiguousSettings(num_gpu_blocks=tokens // 4, block_size=4)
    elif kind == "vllm-v0":
        made = V0Settings(num_gpu_blocks=tokens // 4, block_size=4)
    try:
        return replay(case.workload, made, case.step_time)
    except SimkvError:
        return None


@pytest.mark.parametrize("kind", sorted(set(ENGINES)))
def test_any_two_runs(kind: str) -> None:
    compared = 0
    for seed in range(30):
        r = Random(f"{kind} {seed}")
        case = cases.draw_case(r)
        a, b = cases.replayed(case), other(case, kind, r)
        if b is None:
            continue
        comparison = Comparison((Side("A", "a", a), Side("B", "b", b)))
        (e,) = comparison.explanations
        assert e.sentence
        if a.workload.prompts_have_content:
            assert sum(s.tokens if s.side == 0 else -s.tokens for s in e.shifts) == int(found(b).sum() - found(a).sum())
        if e.parting is None and b.resolved.engine == "vllm":
            assert np.array_equal(found(a), found(b))
            assert a.counters["preemptions"] == b.counters["preemptions"]
        assert describe(comparison)
        assert as_csv(comparison)
        assert as_mapping(comparison)
        assert html_report(comparison)
        compared += 1
    assert compared > 10
