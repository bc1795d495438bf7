"""Which prefixes carry the reuse of a workload: its requests grouped by them, and where each group went.

A group is a place in the tree of all prompts: the requests that pass it share everything up to there. The tree is cut where
most reusable tokens branch, so a system prompt that everybody sends becomes one group per document, tenant or chat behind it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.compiled import entry
from simkv.diagnosis.ladder import Ladder, namespaces
from simkv.diagnosis.shared_prefix import SharedPrefixes, shared_prefixes
from simkv.workload.workload import Workload

I8 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
STEM = 0.6
"""A branch with more than this share of the reusable tokens goes on as the stem: a chat that grows stays one group."""


@dataclass(frozen=True, eq=False)
class PrefixGroups:
    """Groups in order of reusable tokens, the heaviest first. ``G`` groups, ``W`` replicas.

    Args:
        of: group of each request, -1 for none (it shares its prefix with nobody, or was not admitted), shape ``[n]``.
        tokens: length of the prefix that all requests of a group share, shape ``[G]``.
        example: the first request of each group, shape ``[G]``.
        rest: whether other groups branch off it, so that it holds what is left, shape ``[G]``.
        requests: by replica, shape ``[G, W]``.
        ceiling, routed, delivered: the ladder's tokens by replica, shape ``[G, W]``.
    """

    of: I8
    tokens: I8
    example: I8
    rest: Bools
    requests: I8
    ceiling: I8
    routed: I8
    delivered: I8

    def __len__(self) -> int:
        return len(self.tokens)

    def names(self, workload: Workload) -> list[str]:
        """What people call the groups: the session or tenant if a whole group is of one, and the first request."""
        w, out = workload, []
        for g in range(len(self)):
            members = np.flatnonzero(self.of == g)
            first = w.id(int(self.example[g]))
            whose = _same(w.session, w.sessions, members, "session") or _same(w.tenant, w.tenants, members, "tenant")
            name = f"{whose}, from {first}" if whose else f"as {first}"
            out.append(f"all others that begin {name}" if self.rest[g] else name)
        return out


def prefix_groups(workload: Workload, ladder: Ladder, placed: npt.NDArray[np.int32], replicas: int, most: int = 24) -> PrefixGroups:
    """The groups of the requests that the ladder counts.

    Args:
        placed: replica of each request, shape ``[n]``.
        replicas: how many.
        most: groups at most.
    """
    order = np.flatnonzero(ladder.counted)
    shared = shared_prefixes(workload, order, namespaces(workload))
    weight, count = np.zeros(len(shared.edges), np.int64), np.zeros(len(shared.edges), np.int64)
    edges = shared.edges.view(np.recarray)
    _sum_up(edges, shared.roots, shared.last, ladder.of_ceiling, weight, count)
    chosen = _cut(shared, weight, count, most)
    marked = np.full(len(edges), -1, np.int64)
    marked[chosen] = np.arange(len(chosen))
    of, tokens = np.full(len(workload), -1, np.int64), np.zeros(len(chosen), np.int64)
    _assign(edges, shared.roots, shared.last, marked, of)
    rest = np.zeros(len(chosen), np.bool_)
    for g, e in enumerate(chosen):
        while e > shared.roots:
            tokens[g] += edges.n[e]
            e = int(edges.parent[e])
            rest[marked[e]] |= marked[e] >= 0
    total = np.bincount(of[of >= 0], ladder.of_ceiling[of >= 0], len(chosen)).astype(np.int64)
    rank = [g for g in np.argsort(-total, kind="stable").tolist() if (of == g).sum() > 1]
    place = np.full(len(chosen) + 1, -1, np.int64)
    place[rank] = np.arange(len(rank))
    of = place[of]
    cell = of * replicas + placed
    inside = (of >= 0) & (placed >= 0)

    def by_replica(values: npt.NDArray[np.int64] | None) -> I8:
        found = np.bincount(cell[inside], None if values is None else values[inside], len(rank) * replicas)
        return found.astype(np.int64).reshape(len(rank), replicas)

    return PrefixGroups(
        of=of,
        tokens=tokens[rank],
        example=np.array([int(np.argmax(of == g)) for g in range(len(rank))], np.int64),
        rest=rest[rank],
        requests=by_replica(None),
        ceiling=by_replica(ladder.of_ceiling),
        routed=by_replica(ladder.of_routed),
        delivered=by_replica(ladder.of_delivered),
    )


def _cut(shared: SharedPrefixes, weight: I8, count: I8, most: int) -> list[int]:
    """The edges that make groups: stems are followed to where they branch, the heaviest first, until there are enough."""
    parent = shared.edges["parent"]
    heavy = np.flatnonzero((count > 1) & (weight > 0))
    heavy = heavy[heavy > shared.roots]
    heavy = heavy[np.argsort(parent[heavy], kind="stable")]
    above = parent[heavy]

    def branches(e: int) -> list[int]:
        while True:
            low, high = np.searchsorted(above, e), np.searchsorted(above, e, side="right")
            found: list[int] = heavy[low:high].tolist()
            top = max(found, key=lambda c: weight[c], default=0)
            if e <= shared.roots or not found or weight[top] <= STEM * weight[e]:
                return found
            e = top

    out: list[int] = []
    waiting = [(-int(weight[c]), c) for root in range(1, shared.roots + 1) for c in branches(root)]
    heapq.heapify(waiting)
    while waiting and len(out) < most:
        _, e = heapq.heappop(waiting)
        out.append(e)
        for c in branches(e):
            heapq.heappush(waiting, (-int(weight[c]), c))
    return out


@entry
def _sum_up(edges, roots, last, values, weight, count):  # type: ignore[no-untyped-def]
    """Add every request's value to all edges above it."""
    for i in range(len(last)):
        e = last[i]
        while e > roots:
            weight[e] += values[i]
            count[e] += 1
            e = edges[e].parent


@entry
def _assign(edges, roots, last, marked, of):  # type: ignore[no-untyped-def]
    """The deepest marked edge above every request."""
    for i in range(len(last)):
        e = last[i]
        while e > roots and marked[e] < 0:
            e = edges[e].parent
        if e > roots:
            of[i] = marked[e]


def _same(column: npt.NDArray[np.int32] | None, names: tuple[str, ...], members: npt.NDArray[np.int64], what: str) -> str:
    if column is None or not len(members) or column[members[0]] < 0 or (column[members] != column[members[0]]).any():
        return ""
    k = int(column[members[0]])
    return f"{what} {names[k] if k < len(names) else k}"
