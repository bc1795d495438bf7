"""The ladder of the hit rate: what the requests would share in one endless cache, what routing left of it, what was delivered.

Every rung is the same traffic with one more restriction, in tokens of the requests that were admitted, so the losses between
the rungs add up. Requests look up one after the other, in the order of their admission; a loss can come out slightly negative
where admission overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.shared_prefix import SharedPrefixes, shared_prefixes
from simkv.workload.workload import Workload

I8 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ladder:
    """The rungs, per request and in sum. All figures are prompt tokens at first admission; arrays have shape ``[n]``.

    Args:
        block_size: tokens in which a hit is counted; the last prompt token is always computed.
        counted: which requests were admitted; the others are 0 everywhere.
        of_queries: prompt tokens.
        of_ceiling: found in one cache without end that all replicas share.
        of_routed: found in a cache without end per replica, on the replicas that served the requests.
        of_kept: the same, where a replica that restarts begins with an empty cache.
        of_delivered: what the engines found.
        has_content: whether the source says what prompts share; if not, there are no rates.
    """

    block_size: int
    counted: Bools
    of_queries: I8
    of_ceiling: I8
    of_routed: I8
    of_kept: I8
    of_delivered: I8
    has_content: bool = True

    @property
    def queries(self) -> int:
        """Prompt tokens looked up."""
        return int(self.of_queries.sum())

    @property
    def ceiling(self) -> int:
        """What the workload would share in one cache without end."""
        return int(self.of_ceiling.sum())

    @property
    def routed(self) -> int:
        """What routing left of it."""
        return int(self.of_routed.sum())

    @property
    def kept(self) -> int:
        """What restarts left of that."""
        return int(self.of_kept.sum())

    @property
    def delivered(self) -> int:
        """What the engines delivered."""
        return int(self.of_delivered.sum())

    def rate(self, tokens: int) -> float:
        """Share of the prompt tokens; NaN if nothing was looked up or the source says nothing about content."""
        return tokens / self.queries if self.queries and self.has_content else float("nan")

    def rungs(self) -> list[tuple[str, int, float, str]]:
        """``(name, tokens, share, what the loss to the rung above is called)``, from the top; restarts only where there were any."""
        steps = [
            ("one endless cache for all", self.ceiling, "new content"),
            ("one per replica, as routed", self.routed, "routing"),
            *([("… emptied at restarts", self.kept, "cold starts")] if self.kept != self.routed else []),
            ("delivered by the engines", self.delivered, "capacity and timing"),
        ]
        return [(name, tokens, self.rate(tokens), loss) for name, tokens, loss in steps]

    def summary(self) -> dict[str, Any]:
        """Plain figures, ready for JSON."""
        out: dict[str, Any] = {"block_size": self.block_size, "queries": self.queries}
        for name in ("ceiling", "routed", "kept", "delivered"):
            tokens = getattr(self, name)
            rate = self.rate(tokens)
            out[name] = tokens
            out[f"{name}_rate"] = rate if rate == rate else None
        return out


def ladder(
    workload: Workload,
    block_size: int,
    placed: npt.NDArray[Any],
    delivered: npt.NDArray[Any],
    *,
    admitted: npt.NDArray[np.float64] | None = None,
    life: npt.NDArray[Any] | None = None,
) -> Ladder:
    """The ladder of a finished replay. Costs about 0.1 µs per content run of the prompts and rung.

    Args:
        block_size: tokens in which the engine counts a hit: its block, SGLang's page, the resume granularity of a hybrid model.
        placed: replica that served each request, -1 for none, shape ``[n]``.
        delivered: prompt tokens each request found cached at its first admission, shape ``[n]``.
        admitted: moments of first admission, NaN for none, shape ``[n]``; default: the order of the workload.
        life: how often the replica had lost its cache when it served the request, shape ``[n]``; default: never.
    """
    w = workload
    counted = np.asarray(placed) >= 0
    order = np.arange(len(w))
    if admitted is not None:
        counted = counted & np.isfinite(admitted)
        order = np.argsort(admitted, kind="stable")
    order = order[counted[order]]
    apart = namespaces(w)

    def found(*by: npt.NDArray[Any]) -> I8:
        shared = shared_prefixes(w, order, together(apart, *by))
        return hits(w, shared, block_size, counted)

    ceiling = found()
    routed = found(placed) if len(np.unique(np.asarray(placed)[counted])) > 1 else ceiling
    kept = found(placed, life) if life is not None and np.asarray(life).any() else routed
    only = counted.astype(np.int64)
    return Ladder(
        block_size=block_size,
        counted=counted,
        of_queries=w.num_prompt * only,
        of_ceiling=ceiling,
        of_routed=routed,
        of_kept=kept,
        of_delivered=np.asarray(delivered, np.int64) * only,
        has_content=w.prompts_have_content,
    )


def hits(workload: Workload, shared: SharedPrefixes, block_size: int, counted: Bools) -> I8:
    """Tokens that a lookup finds: whole blocks before the last prompt token; nothing for requests that do not read the cache."""
    found: I8 = np.minimum(shared.matched, np.maximum(workload.num_prompt.astype(np.int64) - 1, 0)) // block_size * block_size
    reads = counted if workload.skip_cache is None else counted & ~workload.skip_cache
    return np.where(reads, found, 0)


def namespaces(workload: Workload) -> I8:
    """What keeps requests apart on one replica (salt, adapter, extra key), as numbers from 0 on, shape ``[n]``."""
    w = workload
    columns = [c for c in (w.salt, w.lora, w.extra_key) if c is not None]
    return together(np.zeros(len(w), np.int64), *columns)


def together(*columns: npt.NDArray[Any]) -> I8:
    """One number from 0 on for each combination of the columns that occurs, shape ``[n]``."""
    out = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, part = np.unique(column, return_inverse=True)
        _, out = np.unique(out * (int(part.max(initial=0)) + 1) + part, return_inverse=True)
    return out.astype(np.int64)
