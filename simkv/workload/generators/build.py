"""From drawn lengths and times to a ``Workload``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simkv.workload.generators.arrivals import Arrivals
from simkv.workload.workload import I8, OUTPUT_SEED, RUN, ReadReport, Workload, merge_runs, run_offsets

SHARED = 1
"""Contents that requests share are numbered from here …"""
OWN = 1 << 24
"""… and contents of a single request or session from here; both stay below OUTPUT_SEED."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of every prompt: ``n`` tokens of content ``seed`` from ``start`` on; scalars or one value per request."""

    seed: I8 | int
    n: I8 | int
    start: I8 | int = 0


def workload(
    name: str,
    arrivals: Arrivals,
    pieces: Sequence[Piece],
    output: I8,
    *,
    tenant: I8,
    tenants: int,
    output_piece: Piece | None = None,
    note: str = "",
) -> Workload:
    """Put prompts together.

    Args:
        pieces: the parts of every prompt in order; a part may be empty (``n`` 0) for some requests.
        output: tokens each request generates, shape ``[n]``.
        tenant: tenant of each request, below ``tenants``.
        output_piece: content of the outputs where later prompts contain them; else each output is its own content.
    """
    n = len(arrivals.arrive)
    parts = [*pieces, output_piece or Piece(OUTPUT_SEED + np.arange(n, dtype=np.int64), output)]
    runs = np.zeros((n, len(parts)), RUN)
    for k, part in enumerate(parts):
        runs["seed"][:, k], runs["start"][:, k], runs["n"][:, k] = part.seed, part.start, part.n
    num_prompt = runs["n"][:, :-1].sum(axis=1, dtype=np.int64)
    merged, owner = merge_runs(runs.reshape(-1), np.repeat(np.arange(n, dtype=np.int64), len(parts)))
    sessions = int(arrivals.user.max()) + 1 if n else 0
    return Workload(
        name=name,
        format="generator",
        arrive=arrivals.arrive,
        num_prompt=num_prompt.astype(np.int32),
        num_output=output.astype(np.int32),
        first_run=run_offsets(owner, n),
        runs=merged,
        after=None if arrivals.after is None else arrivals.after.astype(np.int32),
        tenant=tenant.astype(np.int32),
        tenants=tuple(f"tenant-{k}" for k in range(tenants)),
        session=arrivals.user.astype(np.int32),
        sessions=tuple(f"session-{k}" for k in range(sessions)),
        report=ReadReport(rows=n, notes=(note,) if note else ()),
    )
