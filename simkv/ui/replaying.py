"""From a configuration to something to show: the work of the background thread."""

from __future__ import annotations

import dataclasses
import math

from simkv import warm
from simkv.engine.engines import is_compiled, note_compiled
from simkv.errors import SimkvError
from simkv.replay import Run, replay
from simkv.settings.fleet import FleetSettings
from simkv.ui.config import Config
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.run_store import Job
from simkv.ui.shown import Shown, fold, from_cache, unlimited_blocks
from simkv.workload.workload import Workload

MAX_EVENTS = 60_000_000
"""Rows of event log kept for the page, 9 bytes each."""
MAX_FLEET_EVENTS = 2 * MAX_EVENTS
"""The same for all replicas together: a hot one may write many times its share."""
MAX_CEILING_BLOCKS = 4_000_000
SMALL_S = 1.5
"""A replay expected to be shorter than this starts by itself."""

_warm_now: set[str] = set()


def needs_compiling(part: str) -> bool:
    """Whether the first replay that needs this compiled code must make it (20 to 60 s, once per machine)."""
    return part not in _warm_now and not is_compiled(part)


def work(job: Job, workload: Workload, config: Config) -> Shown | FleetShown:
    """Replay, compare with a pool that never evicts, fold; a fleet has its ladder instead. Runs in the job's thread.

    Raises:
        SimkvError: what the engine or the settings refuse.
    """
    part = config.settings.compiled_as
    beside = warm.beside(warm.FOLDS) if needs_compiling(part) else None
    job.phase = "compiling" if beside else "replaying"
    if config.fleet is not None:
        return _fleet(job, workload, config, config.fleet)
    run = replay(workload, config.settings, events=True, progress=job.report, max_events=MAX_EVENTS)
    if part not in _warm_now:
        note_compiled(part)
    _warm_now.add(part)
    job.phase = "folding"
    if beside:
        beside.wait()
    shown = fold(Shown(config, run))
    ceiling, blocks = _ceiling(job, run)
    return dataclasses.replace(shown, ceiling=ceiling, ceiling_blocks=blocks)


def _fleet(job: Job, workload: Workload, config: Config, fleet: FleetSettings) -> FleetShown:
    """Replay a fleet and count its ladder. A replica's block map is folded when somebody looks at it."""
    from simkv.replay_fleet import replay_fleet

    run = replay_fleet(workload, config.settings, fleet, events=True, progress=job.report, max_events=MAX_FLEET_EVENTS)
    job.phase = "counting"
    shown = FleetShown(config, run)
    _ = shown.ladder, shown.series, shown.locality, shown.summary
    return shown


def _ceiling(job: Job, run: Run) -> tuple[float, int]:
    """Hit rate of the same requests where nothing is ever evicted; NaN if that pool is too big to try or the run is partial."""
    blocks = unlimited_blocks(run)
    if run.status != "complete" or not run.workload.prompts_have_content or blocks > MAX_CEILING_BLOCKS or job.cancelled.is_set():
        return math.nan, 0
    if not run.steps["removed"].any() and run.resolved.enable_prefix_caching:
        prompts, hits = from_cache(run)
        return (hits / prompts if prompts else math.nan), run.resolved.num_gpu_blocks
    try:
        settings = run.settings.with_pool(blocks)
        if settings is None:
            return math.nan, 0
        # run.settings already hold what the file records; without this its enable_prefix_caching=False would win again.
        workload = dataclasses.replace(run.workload, engine={})
        best = replay(workload, settings, run.step_time, events=False, progress=lambda _: not job.cancelled.is_set())
    except SimkvError:  # the comparison is an extra: without it the page still says what happened
        return math.nan, 0
    prompts, hits = from_cache(best)
    if best.status != "complete" or not prompts or best.steps["removed"].any():
        return math.nan, 0
    return hits / prompts, blocks
