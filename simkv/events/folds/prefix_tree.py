"""What the cache holds as a tree of prefixes: edges of blocks that follow each other without a branch.

A block names its writer and its place in the writer's tokens; the writer's chain keys name the block before it. That is
enough for every engine with chain keys, hash table (vLLM) or radix tree (SGLang).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.events.folds.pool import PoolState

I4 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """Edges in order of depth, parents before children. E edges.

    Args:
        parent: i4[E] edge before it, -1 at a root or where the content before it has left the cache.
        start: i4[E] tokens before the edge.
        tokens: i4[E] tokens on the edge.
        block: i4[E] its first block.
        writer: i4[E] request that computed it.
        held: i4[E] live requests that hold its first block (the most of any of its blocks).
        since: i4[E] turn of its last change, the newest of its blocks.
        below: i8[E] tokens on the edge and on everything below it.
        leaf: bool[E] nothing follows it.
        orphan: bool[E] the content before it has left the cache, so it cannot be hit.
    """

    parent: I4
    start: I4
    tokens: I4
    block: I4
    writer: I4
    held: I4
    since: I4
    below: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.bool_]
    orphan: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.parent)


def prefix_tree(state: PoolState, keys_of: Callable[[int], U8], block_size: int, keys_per_block: int = 1, group: int = 0) -> PrefixTree:
    """The tree of one KV group at one moment.

    Args:
        keys_of: chain keys of a request as the log has them, one per hashed block.
        block_size: tokens per block of the group.
        keys_per_block: hashed blocks per block; a block's key is its last one.
        group: which group's blocks.
    """
    cached = np.flatnonzero((state.key != 0) & (state.group == group) & (state.writer >= 0))
    key, first = np.unique(state.key[cached], return_index=True)  # of twins the one with the smallest id stands for all
    block = cached[first].astype(np.int32)
    before = _keys_before(state, block, keys_of, keys_per_block)
    at = np.clip(np.searchsorted(key, before), 0, max(len(key) - 1, 0))
    position = state.position[block]
    found = (position > 0) & (key[at] == before) if len(key) else np.zeros(0, bool)
    parent = np.where(found, at, -1)
    children = np.bincount(parent[found], minlength=len(key)) if len(key) else np.zeros(0, np.int64)
    head = ~found | (children[parent] != 1)
    edge_of = _heads(np.where(head, -1, parent))
    return _edges(state, block, parent, head, edge_of, position, found, block_size)


def _keys_before(state: PoolState, block: I4, keys_of: Callable[[int], U8], per: int) -> U8:
    """Key of the content before each block; 0 where its writer starts with it or the writer's keys do not fit."""
    out = np.zeros(len(block), np.uint64)
    order = np.argsort(state.writer[block], kind="stable")
    writers, starts = np.unique(state.writer[block[order]], return_index=True)
    for i, request in enumerate(writers.tolist()):
        mine = order[starts[i] : starts[i + 1] if i + 1 < len(starts) else len(order)]
        keys = keys_of(request)
        index = state.position[block[mine]].astype(np.int64) * per - 1
        known = (index >= 0) & (index < len(keys))
        out[mine[known]] = keys[index[known]]
    return out


def _heads(parent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The end of each chain of parents, by doubling: log2(longest chain) passes over the blocks."""
    own = np.arange(len(parent))
    up = np.where(parent < 0, own, parent)
    while True:
        further = up[up]
        if np.array_equal(further, up):
            return up
        up = further


def _edges(
    state: PoolState,
    block: I4,
    parent: npt.NDArray[np.int64],
    head: npt.NDArray[np.bool_],
    edge_of: npt.NDArray[np.int64],
    position: I4,
    found: npt.NDArray[np.bool_],
    block_size: int,
) -> PrefixTree:
    heads = np.flatnonzero(head)
    heads = heads[np.argsort(position[heads], kind="stable")]  # a parent starts before its children
    number = np.full(len(block), -1, np.int64)
    number[heads] = np.arange(len(heads))
    member = number[edge_of]
    count = np.bincount(member, minlength=len(heads)).astype(np.int64)
    above = np.where(parent[heads] >= 0, member[parent[heads]], -1)
    held, since = np.zeros(len(heads), np.int32), np.full(len(heads), -1, np.int32)
    np.maximum.at(held, member, state.ref[block])
    np.maximum.at(since, member, state.since[block])
    tokens = count * block_size
    below = tokens.copy()
    for e in range(len(heads) - 1, -1, -1):
        if above[e] >= 0:
            below[above[e]] += below[e]
    leaf = np.ones(len(heads), bool)
    leaf[above[above >= 0]] = False
    return PrefixTree(
        parent=above.astype(np.int32),
        start=(position[heads] * block_size).astype(np.int32),
        tokens=tokens.astype(np.int32),
        block=block[heads],
        writer=state.writer[block[heads]],
        held=held,
        since=since,
        below=below,
        leaf=leaf,
        orphan=(position[heads] > 0) & ~found[heads],
    )
