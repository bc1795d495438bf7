"""What a finished run should tell its user unasked: one sentence for each cause that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkv.diagnosis.first_block import first_block
from simkv.diagnosis.history import cut_history
from simkv.diagnosis.resumed import hit_origin
from simkv.diagnosis.seats import seats

if TYPE_CHECKING:
    from simkv.replay import Run

FEW_HITS = 0.01
"""Hit rate below which a run is asked whether its prompts share less than a block."""


def run_notes(run: Run) -> tuple[str, ...]:
    """The sentences, most telling first. Cheap where there is nothing to say."""
    said: list[str | None] = []
    if run.resolved.enable_prefix_caching and run.workload.prompts_have_content:
        if run.counters["hits"] <= FEW_HITS * run.counters["queries"]:
            found = first_block(run.workload, run.resolved.scheduler_block_size)
            said.append(found.sentence if found is not None else None)
        cut = cut_history(run.workload)
        said += [cut.sentence if cut is not None else None, hit_origin(run).sentence]
    crowded = seats(run)
    said.append(crowded.sentence if crowded is not None else None)
    return tuple(s for s in said if s is not None)
