"""The KV events of a fleet's replicas, as a router gets them: some time after they happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simkv.engine.vllm.layout import power_of_two
from simkv.fleet.kv.feed import FEED, read_logs
from simkv.fleet.kv.kv_index import KVIndex
from simkv.fleet.routing.policy import KVEvents

FIRST_EVENTS = 1 << 12
COUNTERS = {"rows": "logged_rows", "blocks": "logged_blocks", "keys": "logged_keys", "turns": "logged_steps", "now": "now"}
"""Fields of FEED and the engine's counters and arrays."""
DIRECT = {"kinds": "kv_kinds", "pending": "kv_keys", "kv_turns": "kv_turns"}
LOGS = ("log", "log_blocks", "log_keys", "steps", "ticks")


class KVFeed:
    """Follows replicas. Content counts as stored while at least one block has it, as Dynamo's and llm-d's filters do.

    An engine that writes KV events itself (``kv_events``) is read by one feed, which throws them away once they were taken.
    The others must write event logs (``log=True``, and ``max_events=None``: a log that is given up ends the events). With
    ``drain`` rows are thrown away once they are read, so that a log nobody wants to keep stays small; otherwise the log is left
    alone. Of hybrid models the first KV group counts.

    A turn's events are known ``lag_s`` after its output was processed (EngineCore publishes them then).

    Args:
        engines: the replicas by slot, ``None`` where there is none yet.
        lag_s: seconds until a router knows.
        drain: nobody else needs the logs that events are read from.
    """

    def __init__(self, engines: Sequence[Any], lag_s: float = 0.0, drain: bool = False) -> None:
        n = len(engines)
        self.lag_s, self.drain = lag_s, drain
        self._engines: list[Any] = [None] * n
        self._states: list[Any] = [None] * n
        self._tables: list[tuple[Any, ...]] = [()] * n
        self._events: list[tuple[Any, ...]] = [()] * n
        self._plain = np.zeros(n, FEED)
        self._feeds, self._heads = self._plain.view(np.recarray), self._plain["head"]
        self._known = np.zeros(n, np.int64)
        self._live: list[int] = []
        self._which = np.zeros(0, np.int64)
        for slot, engine in enumerate(engines):
            self.replace(slot, engine)

    def replace(self, slot: int, engine: Any | None) -> None:
        """A replica begins, or none is there any more. One that restarts within its log (``Replica.restart``) stays the same engine."""
        if engine is self._engines[slot]:
            return
        self._engines[slot], self._states[slot] = engine, None
        if engine is None:
            return
        f = self._feeds[slot]
        f.fill(0)
        f.lag, f.drain, f.latest, f.direct = self.lag_s, self.drain, -np.inf, engine.kv_events
        if f.direct:
            self._events[slot] = ()
            return
        blocks = int(engine.settings.num_gpu_blocks) + 1
        slots = power_of_two(2 * blocks)
        held, table, counts = np.zeros(blocks, np.uint64), np.zeros(slots, np.uint64), np.zeros(slots, np.int32)
        self._tables[slot] = held, table, counts
        f.held, f.num_blocks, f.table, f.counts, f.slots = held.ctypes.data, blocks, table.ctypes.data, counts.ctypes.data, slots
        self._grow(slot, FIRST_EVENTS)

    def collect(self, slot: int, upto: float) -> KVEvents | None:
        """Events of one replica that are known by ``upto`` (seconds) and were not taken before, valid until the next call.

        ``None`` if there are none.
        """
        self._read([slot], upto)
        n, head = int(self._known[slot]), int(self._feeds[slot].head)
        self._feeds[slot].head = head + n
        kinds, keys, _ = self._events[slot]
        return KVEvents(kinds[head : head + n], keys[head : head + n], self._engines[slot].settings.block_size) if n else None

    def deliver(self, live: Sequence[int], upto: float, indexes: Sequence[KVIndex]) -> None:
        """The same of all replicas in ``live``, into the indexes of routers."""
        self._read(live, upto)
        known = self._known[self._which]
        if known.any():
            for index in indexes:
                index.apply_known(self._plain, self._which, self._known)
            self._heads[self._which] += known

    def _read(self, live: Sequence[int], upto: float) -> None:
        """Count what each of the replicas in ``live`` has that is known by ``upto`` and was not taken before."""
        if self._live != live:
            self._live, self._which = list(live), np.array(live, np.int64)
        for slot in live:
            if self._states[slot] is not self._engines[slot].state:
                self._look(slot)
        while (full := read_logs(self._plain, self._which, upto, self._known)) >= 0:
            self._grow(full, 0)

    def _look(self, slot: int) -> None:
        """Note where the replica's log and counters lie; they move when it grows or restarts."""
        engine, f = self._engines[slot], self._feeds[slot]
        self._states[slot] = e = engine.state
        counters = np.asarray(engine.counters.base)
        for name, field in COUNTERS.items():
            f[name] = counters[field].ctypes.data
        logs = [name for name in LOGS if hasattr(e, name)]
        for name in logs:
            f[name] = getattr(e, name).ctypes.data
        f.rooms = max(len(getattr(e, name)) for name in logs)
        f.timed = int(engine.config.virtual)
        if f.direct:
            f.kv = counters["logged_kv"].ctypes.data
            for name, field in DIRECT.items():
                f[name] = getattr(e, field).ctypes.data
            times, old = np.empty(len(e.kv_keys)), self._events[slot]
            if old:
                times[: int(f.tail)] = old[2][: int(f.tail)]
            f.times, f.capacity = times.ctypes.data, len(times)
            self._events[slot] = e.kv_kinds, e.kv_keys, times

    def _grow(self, slot: int, least: int) -> None:
        """Room for twice as many events that wait to be taken."""
        f, old = self._feeds[slot], self._events[slot]
        new_rows = 0
        if self._states[slot] is not None:
            c = self._engines[slot].counters
            new_rows = int(c.logged_rows) - int(f.row) + int(c.logged_blocks) - int(f.block)
        n = max(2 * int(f.capacity), int(f.tail) + new_rows, least)
        new: tuple[Any, ...] = np.zeros(n, np.uint8), np.zeros(n, np.uint64), np.zeros(n)
        for a, b in zip(new, old, strict=False):  # there is no old one the first time
            a[: len(b)] = b
        self._events[slot] = new
        f.capacity, f.kinds, f.pending, f.times = n, new[0].ctypes.data, new[1].ctypes.data, new[2].ctypes.data
