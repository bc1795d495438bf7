"""The stories, replayed on the default server (Llama-3.1-8B on one H100)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate, generators


def rate(name: str, **params: Any) -> float:
    summary = replay(generate(name, requests=1000, **params), EngineSettings(), events=False).summary()
    assert summary["status"] == "complete"
    assert summary["finished"] == 1000
    return float(summary["hit_rate"])


@pytest.mark.parametrize("name", [g.name for g in generators()])
def test_closed_loops_come_to_an_end(name: str) -> None:
    assert 0 <= rate(name, arrivals="closed loop", users=8) < 1


def test_published_claims() -> None:
    """Stable RAG context 88 to 94 % of prefill saved, open-ended work 0 to 5 %."""
    assert 0.88 <= rate("rag_static_context") <= 0.94
    assert 0.0 <= rate("open_ended") <= 0.05


def test_salts_take_sharing_away() -> None:
    shared, per_tenant, per_session = (rate("few_shot_branching", tenants=8, salts=s) for s in ("off", "per tenant", "per session"))
    assert shared > per_tenant > per_session > 0


def test_more_tenants_than_the_pool_holds_sink_the_hit_rate() -> None:
    run = replay(generate("growing_tenants", requests=2000), EngineSettings(), events=False)
    quarter = np.array_split(run.steps, 4)
    early, late = (float(q["hits"].sum() / q["queries"].sum()) for q in (quarter[0], quarter[3]))
    assert early > 0.8
    assert late < 0.6
