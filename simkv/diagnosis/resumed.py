"""Whose hits a hit rate counts: those of requests that come, and those of preempted requests that find their own blocks again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simkv.events import layout as ev

if TYPE_CHECKING:
    from simkv.replay import Run

DIFFERENT = 0.01
"""Points of hit rate from which the two are worth a sentence."""


@dataclass(frozen=True, slots=True)
class HitOrigin:
    """Hits in tokens, apart.

    Args:
        first_queries, first_hits: prompt tokens of admitted requests, and those found cached at the first admission.
        resumed_hits: found by requests that came back after a preemption; ``None`` where neither counters nor an event log tell.
        preemptions: how often that was.
        counted: hits ÷ queries as the release's own counters have them; ``None`` without lookups.
    """

    first_queries: int
    first_hits: int
    resumed_hits: int | None
    preemptions: int
    counted: float | None

    @property
    def first_rate(self) -> float | None:
        """Hit rate across requests: first admissions only."""
        return self.first_hits / self.first_queries if self.first_queries else None

    @property
    def sentence(self) -> str | None:
        """For people; ``None`` where the counters say the same as the first admissions."""
        first = self.first_rate
        if first is None or self.counted is None or self.counted - first < DIFFERENT or not self.preemptions:
            return None
        return (
            f"The release's counters show a hit rate of {self.counted:.1%}, first admissions {first:.1%}: the rest are preempted requests"
            f" that find their own blocks when they resume ({self.preemptions:,} preemptions). That is no reuse between requests; look at"
            " num_preemptions."
        )


def hit_origin(run: Run) -> HitOrigin:
    """Split a run's hits. Releases before vLLM 0.13 count resumed requests like all others, later ones apart."""
    admitted = np.isfinite(run.requests["scheduled"])
    reads = admitted if run.workload.skip_cache is None else admitted & ~run.workload.skip_cache
    c = run.counters
    return HitOrigin(
        first_queries=int(run.workload.num_prompt[reads].sum(dtype=np.int64)),
        first_hits=int(run.requests["hit"][reads].sum(dtype=np.int64)),
        resumed_hits=_resumed(run),
        preemptions=c["preemptions"],
        counted=c["hits"] / c["queries"] if c["queries"] else None,
    )


def _resumed(run: Run) -> int | None:
    if not run.resolved.enable_prefix_caching or not run.counters["preemptions"]:
        return 0
    if run.log is None:
        return run.counters["recompute_hits"] if run.counters["recompute_queries"] else None
    rows = run.log.rows  # packed: these rows stand by themselves
    return int(rows["arg"][rows["kind"] & ev.KIND_MASK == ev.RESUMED].sum(dtype=np.int64))
