"""Lists of chunks in order of last use, as routers bound their tables, with work per node of a trie and not per chunk.

A prompt's chunks are always used together and from the first on, so of a node's chunks the first ones are always the
oldest: what a list still holds of a node are its last ``kept`` chunks, and they lie next to each other in the list.
One list a worker (llm-d), or a single one for all (AIBrix).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simkv.fleet.routing.chunk_trie import NONE
from simkv.fleet.routing.compiled import kernel
from simkv.jit import record

CELL = record(
    ("kept", "i4"),  # the node's last chunks that the list holds
    ("ghost", "i4"),  # its first chunks that a second table still has though the list does not (llm-d)
    ("older", "i4"),  # neighbours in the list, while kept > 0
    ("newer", "i4"),
)
LIST = record(("oldest", "i4"), ("newest", "i4"), ("held", "i8"), ("room", "i8"))  # nodes; chunks in it and at most


class Lru(NamedTuple):
    """``CELL[n, lists]`` for the nodes of a trie, ``LIST[lists]``."""

    cells: npt.NDArray[np.void]
    lists: npt.NDArray[np.void]


def make_lru(nodes: int, lists: int, room: int) -> Lru:
    """Empty lists of ``room`` chunks."""
    lru = Lru(np.zeros((nodes, lists), CELL), np.zeros(lists, LIST))
    lru.lists["oldest"] = lru.lists["newest"] = NONE
    lru.lists["room"] = room
    return lru


def enlarged_lru(lru: Lru) -> Lru:
    """The same for twice as many nodes."""
    return Lru(np.concatenate([lru.cells, np.zeros_like(lru.cells)]), lru.lists)


@kernel
def link(lru, a, node, newer):
    """Put a node into list ``a``, just before ``newer`` (NONE: as the newest)."""
    bounds = lru.lists[a]
    older = bounds.newest if newer == NONE else lru.cells[newer, a].older
    cell = lru.cells[node, a]
    cell.older, cell.newer = older, newer
    if older == NONE:
        bounds.oldest = node
    else:
        lru.cells[older, a].newer = node
    if newer == NONE:
        bounds.newest = node
    else:
        lru.cells[newer, a].older = node


@kernel
def unlink(lru, a, node):
    bounds, cell = lru.lists[a], lru.cells[node, a]
    if cell.older == NONE:
        bounds.oldest = cell.newer
    else:
        lru.cells[cell.older, a].newer = cell.newer
    if cell.newer == NONE:
        bounds.newest = cell.older
    else:
        lru.cells[cell.newer, a].older = cell.older


@kernel
def evict(lru, a, count):
    """Drop the ``count`` oldest chunks; returns how many were not there to drop."""
    bounds = lru.lists[a]
    while count > 0 and bounds.oldest != NONE:
        node = np.int64(bounds.oldest)
        cell = lru.cells[node, a]
        n = min(count, np.int64(cell.kept))
        cell.kept -= n
        bounds.held -= n
        count -= n
        if cell.kept == 0:
            unlink(lru, a, node)
    return count


@kernel
def use(lru, a, node, chunks):
    """Use all chunks of a node in order, one at a time, each new one driving out the oldest if there is no room.

    Returns how many of them, the first ones, were new. What was held of this very node may be driven out before its turn.
    """
    bounds, cell = lru.lists[a], lru.cells[node, a]
    new, lost = np.int64(0), np.int64(0)
    while chunks - cell.kept > new:
        bounds.held += chunks - cell.kept - new
        new = np.int64(chunks - cell.kept)
        if bounds.held > bounds.room:
            missing = evict(lru, a, np.int64(bounds.held - bounds.room))
            bounds.held -= missing
            lost += missing
    if cell.kept > 0:
        unlink(lru, a, node)
    cell.kept = chunks - lost
    if cell.kept > 0:
        link(lru, a, node, NONE)
    return new


@kernel
def divide(lru, lower, upper, size, rest):
    """A node was cut: ``upper`` has its first ``size`` chunks, ``lower`` the ``rest``."""
    for a in range(lru.lists.size):
        cell, fresh = lru.cells[lower, a], lru.cells[upper, a]
        fresh.ghost = min(np.int64(cell.ghost), size)
        cell.ghost = max(np.int64(cell.ghost) - size, 0)
        fresh.kept = max(np.int64(cell.kept) - rest, 0)
        cell.kept = min(np.int64(cell.kept), rest)
        if fresh.kept > 0:
            link(lru, a, upper, lower)
