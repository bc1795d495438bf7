"""Seats and memory: how many requests may run at once before running ones outgrow the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simkv.engine.contract import NOT_ARRIVED

if TYPE_CHECKING:
    from simkv.replay import Run

MANY = 0.01
"""Preemptions per request from which a run is told about its seats."""


@dataclass(frozen=True, slots=True)
class Seats:
    """A pool and the requests that may run in it.

    Args:
        pool_tokens: tokens the KV cache holds.
        max_num_seqs: requests that may run at once.
        request_tokens: prompt and answer of a long request (the 95th percentile).
    """

    pool_tokens: int
    max_num_seqs: int
    request_tokens: int

    @property
    def tokens_per_seat(self) -> int:
        """What each request has if all seats are taken."""
        return self.pool_tokens // self.max_num_seqs

    @property
    def safe_max_num_seqs(self) -> int:
        """Seats that the pool can serve with long requests to their end; at least one."""
        return max(1, self.pool_tokens // self.request_tokens)

    @property
    def sentence(self) -> str | None:
        """For people; ``None`` where the memory is enough for all seats."""
        if self.safe_max_num_seqs >= self.max_num_seqs:
            return None
        return (
            f"Seats exceed memory: max_num_seqs={self.max_num_seqs:,} leaves {self.tokens_per_seat:,} of {self.pool_tokens:,} tokens to"
            f" each request, and one in 20 grows to {self.request_tokens:,} or more, so running ones outgrow the pool and are computed"
            f" again. max_num_seqs={self.safe_max_num_seqs:,} is safe even if they share nothing; the more they share, the more fit."
        )


def seats(run: Run) -> Seats | None:
    """The seats of a run that preempted; ``None`` if it hardly did.

    Blocks shared between running requests are not counted, so where much is shared more seats are safe.
    """
    came, preemptions = run.requests["status"] != NOT_ARRIVED, run.counters["preemptions"]  # a replica does not get all requests
    if not preemptions or preemptions < MANY * came.sum() or run.resolved.engine == "contiguous":  # whose seats are reserved memory
        return None
    tokens = (run.workload.num_prompt.astype(np.int64) + run.requests["generated"])[came]
    pool = (run.resolved.num_gpu_blocks - 1) * run.resolved.block_size
    return Seats(pool, run.resolved.max_running, max(1, int(np.percentile(tokens, 95))))
