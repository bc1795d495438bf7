"""One small replay with evictions, shared by the tests of what the page draws from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simkv.settings import EngineSettings
from simkv.ui.config import Config
from simkv.ui.run_store import Job
from simkv.ui.shown import Shown

APP = Path(__file__).resolve().parents[2] / "app.py"


@pytest.fixture(scope="session")
def shown() -> Shown:
    """120 requests of growing tenants on a pool too small for them."""
    from simkv.ui.replaying import work
    from simkv.workload.generators import generate

    params = {"requests": 120, "tenants": 12, "context_tokens": 600, "question_tokens": 50, "output_tokens": 30}
    settings = EngineSettings(num_gpu_blocks=260, max_num_seqs=8, max_num_batched_tokens=512)
    config = Config("generator", "growing_tenants", tuple(params.items()), settings=settings)
    workload = generate("growing_tenants", **params)
    job = Job(config, lambda job: work(job, workload, config))
    job.run()
    assert job.error is None, job.error
    assert job.result is not None
    return job.result


@pytest.fixture
def fresh_store() -> Iterator[None]:
    """The page's stores empty before and after."""
    import streamlit as st

    st.cache_resource.clear()
    yield
    st.cache_resource.clear()
