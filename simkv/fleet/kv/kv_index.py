"""An index of cached blocks, fed by KV events: which workers hold how much of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.fleet.kv.deliver import deliver
from simkv.fleet.kv.dynamo_tree import DynamoTree
from simkv.fleet.kv.index import CLEARED, STORED, Index, apply_events, block_and_holders, forget
from simkv.fleet.kv.leading import count
from simkv.fleet.kv.orders import Orders, order_of_workers
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.kv.table import META, refill
from simkv.fleet.routing.policy import KVEvents

FIRST_PLACES = 1 << 14
CACHE_LINE = 64
"""Bytes."""
ROOM = 8
"""Places that are set aside for each one in use. Memory nobody has written to costs nothing, and memory new to the process much."""


class KVIndex:
    """Blocks by chain key, each with the workers that hold it.

    Events of a simulation come from caches that lose their blocks from the end, in the order they happened; then a prompt's
    length is found without looking at every block. Events that say what each block follows (``KVEvents.extra["parents"]``,
    recordings) are taken as Dynamo takes them (dynamo_tree.py).

    Args:
        workers: slots.
        gaps: caches may lose blocks from the middle; each block counts for itself.
        most: workers kept per block, the latest ones; ``None``: all. With fewer than there are, blocks count for themselves.
    """

    def __init__(self, workers: int, gaps: bool = False, most: int | None = None) -> None:
        self.most = 0 if most is None or most >= workers else most
        self.workers, self.gaps = workers, gaps or self.most > 0
        self.tree: DynamoTree | None = None
        self.active = np.zeros((workers + 63) // 64, np.uint64)
        self.state = self._make(FIRST_PLACES)

    def _make(self, places: int) -> Index:
        rows, orders = _rows(places, block_and_holders(self.workers)), self._make_orders(FIRST_PLACES) if self.most else None
        return Index(rows, places, np.zeros(1, META), np.zeros((3, 64), np.int64), orders)

    def _make_orders(self, places: int) -> Orders:
        return Orders(_rows(places, order_of_workers(self.workers, self.most)), places, np.zeros(1, META))

    def __len__(self) -> int:
        """Blocks somebody holds."""
        return int(self.state.meta[0].live)

    def apply(self, worker: int, batch: KVEvents) -> None:
        """A worker's events, in order."""
        if "parents" in batch.extra:
            self._apply_to_tree(worker, batch)
            return
        done = 0
        while (done := int(apply_events(*self.state, worker, batch.kinds, batch.keys, done))) < len(batch.kinds):
            self._enlarge()

    def apply_known(self, feeds: npt.NDArray[Any], which: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> None:
        """Events that wait at the replicas ``which``, the next ``known[slot]`` of each (simkv/fleet/kv_feed.py)."""
        progress = np.zeros(2, np.int64)
        while not deliver(feeds, which, known, progress, *self.state):
            self._enlarge()

    def forget(self, worker: int) -> None:
        """The worker left: it holds nothing."""
        if self.tree is not None:
            self.tree.clear(worker)
        forget(self.state, worker)

    def count(self, keys: RequestKeys, req: int, out: npt.NDArray[np.int32]) -> None:
        """Leading blocks of request ``req``'s prompt each worker holds, into ``out`` (shape ``[W]``)."""
        if self.tree is None:
            count(*self.state, *keys.state, self.gaps, req, out, self.active)
            return
        out[:] = 0
        for worker, n in self.tree.match(keys.of(req).tolist()).items():
            out[worker] = n

    def _apply_to_tree(self, worker: int, batch: KVEvents) -> None:
        """Events that begin at ``extra["first"]``; ``extra["parents"]`` has the key before each one's first block, 0 for none."""
        if self.tree is None:
            self.tree = DynamoTree()
        starts = [*batch.extra["first"], len(batch.kinds)]
        for a, b, parent in zip(starts[:-1], starts[1:], batch.extra["parents"], strict=True):
            keys = batch.keys[a:b].tolist()
            if batch.kinds[a] == STORED:
                self.tree.store(worker, parent or None, keys)
            elif batch.kinds[a] == CLEARED:
                self.tree.clear(worker)
            else:
                self.tree.remove(worker, keys)

    def _enlarge(self) -> None:
        """Twice as many places for the table that is full, or for both."""
        ix, orders = self.state, self.state.orders
        if orders is not None and 8 * orders.meta[0].live >= 5 * orders.places:
            self.state = ix = ix._replace(orders=_larger(orders, self._make_orders))
        if 8 * ix.meta[0].live >= 5 * ix.places:
            self.state = _larger(ix, self._make)._replace(orders=ix.orders)


def _larger(table: Any, make: Callable[[int], Any]) -> Any:
    """The same with twice as many places: in its own memory if that has them, else in a table that is made."""
    places = 2 * table.places
    new = table._replace(places=places) if places < len(table.rows) else make(places)._replace(meta=table.meta)
    refill(new, table.rows, table.places)
    return new


def _rows(places: int, row: np.dtype[Any]) -> npt.NDArray[Any]:
    """Empty rows for a table. They begin with a cache line, so that no more of them than need be lie in two."""
    size = (ROOM * places + 1) * row.itemsize
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    first = -raw.ctypes.data % CACHE_LINE
    return raw[first : first + size].view(row)
