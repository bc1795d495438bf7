"""An index of cached blocks, fed by KV events: which workers hold how much of a prompt."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.layout import power_of_two
from simkv.fleet.kv import index as ix
from simkv.fleet.kv.compiled import entry
from simkv.fleet.kv.index import CLEARED, LINK, META, STORED, Index, apply_events, count_closed, count_each, forget
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.kv.runs import clear_runs, remove_block, store_run
from simkv.fleet.routing.policy import KVEvents

FIRST_ENTRIES = 1 << 12
CLOSED, EACH, RUNS = range(3)
"""How matches are counted: caches lose their blocks from the end; they may lose any; they may, and a gap is what Dynamo makes of it."""


@entry
def count(i, how, k, req, out, active):  # type: ignore[no-untyped-def]
    """Leading blocks of a prompt each worker holds, into ``out``."""
    if how == CLOSED:
        count_closed(i, k, req, out)
    else:
        count_each(i, k, req, out, active)


class KVIndex:
    """Blocks by chain key, each with the workers that hold it.

    Events of a simulation come from caches that lose their blocks from the end, in the order they happened; then a prompt's
    length is found without looking at every block. Events that say what each block follows (``KVEvents.extra["parents"]``,
    recordings) are taken as Dynamo takes them (runs.py).

    Args:
        workers: slots.
        gaps: caches may lose blocks from the middle; each block counts for itself.
    """

    def __init__(self, workers: int, gaps: bool = False) -> None:
        self.workers = workers
        self.how = EACH if gaps else CLOSED
        self.active = np.zeros((workers + 63) // 64, np.uint64)
        self.state = self._make(FIRST_ENTRIES)

    def _make(self, entries: int) -> Index:
        linked = entries + 1 if self.how == RUNS else 1
        return Index(
            table=np.zeros(power_of_two(2 * entries + 2), np.uint64),
            rows=np.zeros((entries + 1, 1 + len(self.active)), np.uint64),
            links=np.zeros(linked, LINK).view(np.recarray),
            meta=np.zeros(1, META).view(np.recarray),
            scratch=np.zeros((3, 64), np.int64),
            stack=np.zeros(linked, np.int32),
        )

    def __len__(self) -> int:
        """Blocks somebody holds, or has held (runs)."""
        return int(self.state.meta[0].live)

    def apply(self, worker: int, batch: KVEvents) -> None:
        """A worker's events, in order."""
        if "parents" in batch.extra:
            self._apply_runs(worker, batch)
            return
        done = 0
        while (done := int(apply_events(self.state, worker, batch.kinds, batch.keys, done))) < len(batch.kinds):
            self._enlarge(1)

    def forget(self, worker: int) -> None:
        """The worker left: it holds nothing."""
        (clear_runs if self.how == RUNS else forget)(self.state, worker)

    def count(self, keys: RequestKeys, req: int, out: npt.NDArray[np.int32]) -> None:
        """Leading blocks of request ``req``'s prompt each worker holds, into ``out`` (shape ``[W]``)."""
        count(self.state, self.how, keys.state, req, out, self.active)

    def _apply_runs(self, worker: int, batch: KVEvents) -> None:
        """Events that begin at ``extra["first"]``; ``extra["parents"]`` has the key before each one's first block, 0 for none."""
        if self.how != RUNS:
            self.how = RUNS
            self.state = self._make(FIRST_ENTRIES)
        starts = [*batch.extra["first"], len(batch.kinds)]
        for a, b, parent in zip(starts[:-1], starts[1:], batch.extra["parents"], strict=True):
            if batch.kinds[a] == STORED:
                self._enlarge(b - a)
                store_run(self.state, worker, np.uint64(parent), batch.keys[a:b])
            elif batch.kinds[a] == CLEARED:
                clear_runs(self.state, worker)
            else:
                for key in batch.keys[a:b]:
                    remove_block(self.state, worker, key)

    def _enlarge(self, need: int) -> None:
        """Room for ``need`` more entries."""
        meta, old = self.state.meta[0], self.state
        if int(meta.used) + need < len(old.rows):
            return
        new = self._make(max(2 * len(old.rows), len(old.rows) + need))
        new.rows[: len(old.rows)], new.meta[:] = old.rows, old.meta
        if self.how == RUNS:
            new.links[: len(old.links)] = old.links
        refill(new, old.table)
        self.state = new


@entry
def refill(new, table):  # type: ignore[no-untyped-def]
    """Enter what the old table held into the new one."""
    for word in table:
        if word != 0:
            x = np.int64(word & ix.LOW)
            key = new.rows[x, 0]
            new.table[ix.place_of(new.table, new.rows, key)] = (key << ix.HALF) | np.uint64(x)
