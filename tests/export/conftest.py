"""One small run with evictions and a preemption, shared by the export tests."""

from __future__ import annotations

from typing import Any

import pytest

from simkv.events.digests import Digests
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate


@pytest.fixture(scope="session")
def run() -> Any:
    """60 chat requests through a pool too small for them."""
    workload = generate("multi_turn_chat", seed=3, requests=60, system_tokens=64, rate=20.0, length_cv=0.5)
    settings = EngineSettings(num_gpu_blocks=230, max_num_seqs=16, max_num_batched_tokens=512)
    result = replay(workload, settings)
    summary = result.summary()
    assert summary["removed_blocks"]
    assert summary["preemptions"]
    return result


@pytest.fixture(scope="session")
def digests(run: Any) -> Digests:
    """Real digests of that run's requests."""
    return Digests(run.workload, run.resolved.hash_block_size)
