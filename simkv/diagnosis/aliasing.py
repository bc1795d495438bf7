"""Round robin that looks like affinity: groups of requests come in turn, and their turn fits the number of replicas."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.workload.workload import Workload

LEAST_REPEATS = 16
"""Requests that follow one of their own group; with fewer nothing is said."""
FEW = 0.75
"""Share of the replicas expected by chance below which a group is taken to be tied to its replicas."""
HEAD = 16
"""Written-out tokens that tell groups apart."""
I8 = npt.NDArray[np.int64]


def aliasing_note(workload: Workload, replicas: int) -> str | None:
    """Whether dealing requests in turn keeps each group on fixed replicas, which no real traffic does.

    Groups are requests with the same beginning, of one tenant, or of one session. Counted is how many replicas a group comes to, against
    what a shuffled order would bring it to on average: ``replicas * (1 - (1 - 1 / replicas) ** requests)``.

    Returns:
        What, why and what to do in one sentence; ``None`` where round robin is as bad as it should be, or arrivals are not known
        beforehand (closed loop).
    """
    w = workload
    if replicas < 2 or not len(w) or (w.after is not None and np.count_nonzero(w.after >= 0) * 2 > len(w)):
        return None
    order = np.argsort(w.arrive, kind="stable") if w.after is None else np.arange(len(w))
    turn = np.empty(len(w), np.int64)
    turn[order] = np.arange(len(w))
    for what, group in _groups(w):
        number, size = np.unique(group, return_counts=True)
        if len(w) - len(number) < LEAST_REPEATS:
            continue
        several = size > 1
        touched = np.unique(np.stack([group, turn % replicas], axis=1), axis=0)[:, 0]
        came_to = np.unique(touched, return_counts=True)[1][several].mean()
        by_chance = (replicas * (1.0 - (1.0 - 1.0 / replicas) ** size[several])).mean()
        if came_to < FEW * by_chance:
            return (
                f"Round robin looks like affinity here: {len(number):,} {what} come in a turn that fits {replicas} replicas, so each comes"
                f" to {came_to:.1f} of them on average, in a shuffled order to {by_chance:.1f}. That is an artefact of the order: shuffle"
                " the arrivals before you compare routers."
            )
    return None


def _groups(w: Workload) -> list[tuple[str, I8]]:
    """Ways to tell groups apart: (name of a group, group of each request), without those that make one group of all."""
    ways = [("prefixes", _beginnings(w))]
    if w.tenant is not None:
        ways.append(("tenants", w.tenant.astype(np.int64)))
    if w.session is not None:
        ways.append(("sessions", w.session.astype(np.int64)))
    return [(name, group) for name, group in ways if len(np.unique(group)) > 1]


def _beginnings(w: Workload) -> I8:
    """Number of each prompt's beginning: its first run, or its first written-out tokens."""
    first = w.runs[w.first_run[:-1]]
    rows = np.zeros((len(w), 2), np.int64)
    rows[:, 0], rows[:, 1] = first["seed"], first["start"]
    seen: dict[bytes, int] = {}
    for i in np.flatnonzero(first["seed"] < 0).tolist():
        at = -1 - int(first["seed"][i]) + int(first["start"][i])
        head = w.tokens[at : at + min(HEAD, int(first["n"][i]))].tobytes()
        rows[i] = -1, seen.setdefault(head, len(seen))
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
