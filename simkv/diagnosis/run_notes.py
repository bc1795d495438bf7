"""What a finished run should tell its user unasked: one sentence for each cause that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkv.diagnosis.first_block import first_block
from simkv.diagnosis.history import cut_history
from simkv.diagnosis.resumed import hit_origin
from simkv.diagnosis.seats import seats

if TYPE_CHECKING:
    from simkv.replay import Run
    from simkv.replay_fleet import FleetRun

FEW_HITS = 0.01
"""Hit rate below which a run is asked whether its prompts share less than a block."""


def run_notes(run: Run) -> tuple[str, ...]:
    """The sentences, most telling first. Cheap where there is nothing to say."""
    said = of_traffic(run, run.resolved.scheduler_block_size) if run.resolved.enable_prefix_caching else []
    return tuple(s for s in (*said, *of_engine(run)) if s is not None)


def fleet_notes(run: FleetRun) -> tuple[str, ...]:
    """The same for a fleet: what the traffic does once, what happens in engines for the replica where it happens most."""
    caching = [r.resolved.scheduler_block_size for r in run.replicas if r.resolved.enable_prefix_caching]
    said = of_traffic(run, max(caching)) if caching else []
    worst_first = sorted(range(len(run.replicas)), key=lambda i: -run.replicas[i].counters["preemptions"])
    for sentences in zip(*(of_engine(run.replicas[i]) for i in worst_first), strict=True):
        found = [(i, s) for i, s in zip(worst_first, sentences, strict=True) if s is not None]
        if found:
            name = f"Replica {found[0][0]}: " if len(run.replicas) > 1 else ""
            more = len(found) - 1
            others = f" The same on {more} other replicas." if more > 1 else " The same on another replica." if more else ""
            said.append(f"{name}{found[0][1]}{others}")
    return tuple(s for s in said if s is not None)


def of_traffic(run: Run | FleetRun, block_size: int) -> list[str | None]:
    """What cannot be found in any cache."""
    if not run.workload.prompts_have_content:
        return []
    found = first_block(run.workload, block_size) if run.counters["hits"] <= FEW_HITS * run.counters["queries"] else None
    cut = cut_history(run.workload)
    return [found.sentence if found is not None else None, cut.sentence if cut is not None else None]


def of_engine(run: Run) -> list[str | None]:
    """What preemption does to one engine's figures."""
    counted = run.resolved.enable_prefix_caching and run.workload.prompts_have_content
    crowded = seats(run)
    return [hit_origin(run).sentence if counted else None, crowded.sentence if crowded is not None else None]
