"""What the KV memory holds over a run: token states, and five kinds of nothing.

At each turn, when its tokens are computed, every token slot of the pool is one of

* ``states``: holds the key and value of a token of a live request (shared ones once);
* ``reserved``: will hold one before its request ends;
* ``internal``: was asked for by a request and never holds one (internal fragmentation: over-reservation, and the rest of a last
  block);
* ``rounding``: was added by a buddy allocator to what was asked for. The PagedAttention paper counts this as external
  fragmentation, since no request asked for it;
* ``external``: free, and yet the first waiting request cannot be placed, in a system that would admit it at once (external
  fragmentation, or simply too little);
* ``idle``: free otherwise. Paged memory is never external: any free block serves. Cached blocks that no live request holds
  are free.

Figures are means over time. In step mode every step counts the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from simkv.events.folds.waste import uses
from simkv.replay import Run

F8 = npt.NDArray[np.float64]
PARTS = ("states", "reserved", "internal", "rounding", "external", "idle")


@dataclass(frozen=True, slots=True)
class Waste:
    """Mean tokens over time; the parts sum to ``pool``."""

    pool: float
    states: float
    reserved: float
    internal: float
    rounding: float
    external: float
    idle: float

    def shares(self) -> dict[str, float]:
        """Each part as a share of the pool."""
        return {name: getattr(self, name) / self.pool for name in PARTS}

    def shares_of_held(self) -> dict[str, float] | None:
        """The first four parts as shares of what requests hold; ``None`` if nothing was ever held."""
        held = self.states + self.reserved + self.internal + self.rounding
        return {name: getattr(self, name) / held for name in PARTS[:4]} if held > 0 else None

    def to_mapping(self) -> dict[str, float]:
        """Plain values, in tokens."""
        return asdict(self)


def can_tell(run: Run) -> bool:
    """Whether the run says enough: an event log with one block table a request, for full attention.

    Not so for models with sliding windows, and for vLLM V0 with several sequences a request.
    """
    return run.log is not None and [g["type"] for g in run.log.header["groups"]] == ["full"]


def waste_over_time(run: Run) -> dict[str, F8] | None:
    """The six parts in tokens while each turn of ``run.steps`` computes, each of shape ``[turns]``; ``None`` unless ``can_tell``."""
    found = _uses(run)
    return None if found is None else _parts(run, found[0])


def waste(run: Run) -> Waste | None:
    """Means over the run; ``None`` unless ``can_tell``, or if no time passed."""
    found = _pieces(run)
    if found is None:
        return None
    edges, parts = found
    spans, whole = np.diff(edges), float(edges[-1] - edges[0])
    means = {name: float(np.dot(values, spans)) / whole for name, values in parts.items()}
    return Waste(pool=(run.resolved.num_gpu_blocks - 1) * float(run.resolved.block_size), **means)


def waste_series(run: Run, points: int = 300) -> dict[str, F8] | None:
    """Means over ``points`` equal stretches of the run, each of shape ``[points]``: ``time`` (where the stretch ends) and every
    part as a share of the pool. ``None`` unless ``can_tell``, or if no time passed.
    """
    found = _pieces(run)
    if found is None:
        return None
    edges, parts = found
    pool = (run.resolved.num_gpu_blocks - 1) * float(run.resolved.block_size)
    at = np.linspace(edges[0], edges[-1], points + 1)
    spans = np.diff(edges)
    out = {"time": at[1:]}
    for name, values in parts.items():
        so_far = np.concatenate([[0.0], np.cumsum(values * spans)])
        out[name] = np.diff(np.interp(at, edges, so_far)) / np.diff(at) / pool
    return out


def _pieces(run: Run) -> tuple[F8, dict[str, F8]] | None:
    """``(edges, parts)``: part k holds from ``edges[k]`` to ``edges[k + 1]``; two pieces a turn, computing and behind it."""
    found, steps = _uses(run), run.steps
    if found is None or not len(steps):
        return None
    until = np.append(steps["time"][1:], max(run.end_time_s, float(steps["time"][-1])))
    computed = np.clip(np.maximum.accumulate(steps["end"]), steps["time"], until)
    if not steps["duration"].any():  # time in steps: one of them is all the time there is
        computed = until
    if until[-1] <= steps["time"][0]:
        return None
    busy, after = (_parts(run, use) for use in found)
    edges = np.concatenate([np.stack([steps["time"], computed], 1).ravel(), until[-1:]])
    return edges, {name: np.stack([busy[name], after[name]], 1).ravel() for name in PARTS}


def _uses(run: Run) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]] | None:
    if run.log is None or not can_tell(run):
        return None
    length = run.workload.num_prompt.astype(np.int64) + run.workload.num_output
    longest = getattr(run.resolved, "max_model_len", None)
    asked = run.resolved.asked(run.workload) if hasattr(run.resolved, "asked") else None
    return uses(run.log, length if longest is None else np.minimum(length, longest), asked)


def _parts(run: Run, use: npt.NDArray[np.void]) -> dict[str, F8]:
    s, size = run.resolved, float(run.resolved.block_size)
    held, unused = use["held"] * size, {name: use[name].astype(float) for name in PARTS[1:4]}
    free = (s.num_gpu_blocks - 1) * size - held
    refused = np.zeros(len(use), bool)
    if getattr(s, "batching", None) == "continuous":
        refused = (run.steps["waiting"] > 0) & (use["holders"] < s.max_running)
    return {
        "states": held - sum(unused.values()),
        **unused,
        "external": np.where(refused, free, 0.0),
        "idle": np.where(refused, 0.0, free),
    }
