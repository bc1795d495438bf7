"""A replica that dies and comes back: its log goes on, and a fold over it ends where the engine is."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.engine.contract import ABORTED, RUNNING, WAITING
from simkv.engine.engines import make_engine, resolve_for
from simkv.engine.step_time import for_workload
from simkv.events.folds.pool import PoolFold
from simkv.metrics.waste import waste
from simkv.replay import collect
from simkv.settings import ContiguousSettings, EngineSettings, Settings, SglangSettings, V0Settings
from simkv.workload.generators import generate

ENGINES = [
    EngineSettings(num_gpu_blocks=400),
    EngineSettings(num_gpu_blocks=400, async_scheduling=False),
    SglangSettings(max_total_tokens=6400, page_size=16),
    V0Settings(num_gpu_blocks=400),
    ContiguousSettings(num_gpu_blocks=4000),
]


@pytest.mark.parametrize("settings", ENGINES, ids=["vllm", "vllm-sync", "sglang", "v0", "contiguous"])
@pytest.mark.parametrize("at", [0.0, 3.0, 7.5])
def test_a_fold_follows_a_restart(settings: Settings, at: float) -> None:
    workload = generate("shared_system_prompt", requests=60, seed=2)
    resolved, step_time = resolve_for(settings, workload), for_workload(workload, settings)

    def new() -> object:
        return make_engine(workload, resolved, step_time.record(), log=True)

    engine = new()
    as_new = engine.state.reqs.copy()  # type: ignore[attr-defined]
    engine.advance(at)  # type: ignore[attr-defined]
    reqs = engine.state.reqs  # type: ignore[attr-defined]
    live = np.flatnonzero((reqs["status"] == WAITING) | (reqs["status"] == RUNNING)).tolist()
    before = len(engine.event_log())  # type: ignore[attr-defined]
    fresh = new()
    fresh.state = fresh.state._replace(reqs=reqs)  # type: ignore[attr-defined]
    fresh.counters.next_arrival = engine.counters.next_arrival  # type: ignore[attr-defined]
    for r in live:
        reqs[r] = as_new[r]
        reqs["status"][r] = ABORTED
    engine.restart(fresh, at, live)  # type: ignore[attr-defined]
    engine.check_integrity()  # type: ignore[attr-defined]
    # Memory that is not paged has no queue: its free pieces are not handed out in an order.
    pristine = engine.free_queue().tolist() if settings.engine != "contiguous" else None
    log = engine.event_log()  # type: ignore[attr-defined]
    assert len(log) == before + len(live) + 1
    state = PoolFold(log).seek(len(log.steps) - 1)
    assert not state.ref[1:].any()
    assert not state.key.any()
    assert not len(state.live())
    if pristine is not None:
        assert state.free_queue().tolist() == pristine == sorted(pristine)
    engine.advance()  # type: ignore[attr-defined]
    engine.check_integrity()  # type: ignore[attr-defined]
    log = engine.event_log()  # type: ignore[attr-defined]
    state = PoolFold(log).seek(len(log.steps) - 1)
    if pristine is not None:
        assert state.free_queue().tolist() == engine.free_queue().tolist()  # type: ignore[attr-defined]
    run = collect(engine, settings, step_time, "complete", 0.0, 0.0, [])  # type: ignore[arg-type]
    assert (log.steps["time"][1:] >= log.steps["time"][:-1]).all()
    assert run.summary()["finished"] + len(live) == 60
    waste(run)
