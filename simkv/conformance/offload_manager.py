"""Recorded scripts of the host tier's chunk manager alone: one a line, ``{spec, log: [{op, res, ev, gauges, st}]}``."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simkv.conformance.result import Comparison, RunResult
from simkv.engine.offload.manager import ChunkManager
from simkv.errors import InputError

STATE_LISTS = ("lru", "t1", "t2")
GHOST_LISTS = ("b1", "b2")


def manager_scripts(path: Path) -> list[Callable[[], RunResult]]:
    """A check for each script of this file; none if it is not one."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            head = lines.read(64)
            if not head.startswith('{"spec"'):
                return []
            lines.seek(0)
            scripts = [json.loads(line) for line in lines]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return []
    except ValueError as problem:
        raise InputError(f"not JSON ({problem})", file=str(path), expected="one script a line") from problem
    return [lambda script=script: _Script(script).run() for script in scripts]  # type: ignore[misc]


class _Script:
    """One script beside its recording. Recorded keys are texts, the manager's are whole numbers."""

    def __init__(self, script: dict[str, Any]) -> None:
        spec = script["spec"]
        self.log = script["log"]
        self.compare = Comparison(spec["name"])
        self.manager = ChunkManager(
            spec["num_chunks"], spec["policy"], spec.get("store_threshold", 0), spec.get("max_tracker_size", 64_000)
        )
        self.number: dict[str, int] = {}
        self.name: dict[int, str] = {}
        self.skipped = 0

    def _keys(self, names: list[str]) -> list[int]:
        for name in names:
            if name not in self.number:
                key = ((len(self.number) + 1) * 0x9E3779B97F4A7C15) & 0xFFFF_FFFF_FFFF_FFFF
                self.number[name], self.name[key] = key, name
        return [self.number[name] for name in names]

    def _names(self, keys: list[int]) -> list[str]:
        return [self.name[key] for key in keys]

    def run(self) -> RunResult:
        """Compare result, events, gauges and state of every call."""
        for i, record in enumerate(self.log):
            if self.compare.difference is not None:
                break
            operation = record["op"][0]
            got, events = self._call(i, operation, record["op"][1:])
            self.compare.equal(i, operation, record["res"], got)
            self.compare.equal(i, f"{operation} events", [[e[0], sorted(e[1])] for e in record["ev"]], events)
            self.compare.equal(i, f"{operation} state", record["st"], self._state())
            mine = self._gauges()
            self.compare.equal(i, f"{operation} gauges", record["gauges"], {k: mine[k] for k in record["gauges"]})
        return self.compare.result(f"{len(self.log)} calls of the chunk manager")

    def _call(self, i: int, operation: str, given: list[Any]) -> tuple[Any, list[Any]]:
        m = self.manager
        if operation == "new":
            m.new_request(given[0], self._keys(self._order(i, *given)))
        elif operation == "lookup":
            return m.lookup(self._keys([given[1]])[0]), []
        elif operation == "prepare_load":
            return m.prepare_load(given[0], self._keys(given[1])), []
        elif operation == "complete_load":
            m.complete_load(given[0], self._keys(given[1]))
        elif operation == "prepare_store":
            answer = m.prepare_store(given[0], self._keys(given[1]))
            if answer is None:
                return None, []
            stored, chunks, evicted = answer
            return [self._names(stored), chunks, self._names(evicted)], [["R", sorted(self._names(evicted))]] if evicted else []
        elif operation == "complete_store":
            keys = self._keys(given[1])
            waiting = sorted(name for name, key in zip(given[1], keys, strict=True) if m.lookup(key) == "HIT_PENDING")
            m.complete_store(given[0], keys, given[2])
            return None, [["S", waiting]] if waiting and given[2] else []
        elif operation == "touch":
            m.touch(self._keys(given[1]))
        elif operation == "finish":
            m.finish(given[0])
        else:
            m.reset()
        return None, []

    def _order(self, i: int, request: Any, positions: dict[str, int]) -> list[str]:
        """The keys a request will name: by position, or as they come if one has none."""
        named: dict[str, None] = {}
        for record in self.log[i:]:
            if record["op"][0] in ("prepare_store", "prepare_load") and record["op"][1] == request:
                named.update(dict.fromkeys(record["op"][2]))
        if all(name in positions for name in named):
            return sorted(positions, key=positions.__getitem__)
        return list(named)

    def _state(self) -> dict[str, Any]:
        state = self.manager.state()
        for which in STATE_LISTS:
            if which in state:
                state[which] = [[self.name[key], ref, chunk] for key, ref, chunk in state[which]]
        for which in GHOST_LISTS:
            if which in state:
                state[which] = self._names(state[which])
        return state

    def _gauges(self) -> dict[str, Any]:
        m, n = self.manager.chunks.manager[0], int(self.manager.config[0].chunks)
        used, writing = int(m.fresh - m.free - m.evictable) / n, int(m.pending) / n
        skipped, self.skipped = int(m.skipped) - self.skipped, int(m.skipped)
        return {
            "kv_offload_cpu_cache_usage_perc": used,
            "kv_offload_cpu_cache_write_usage_perc": writing,
            "kv_offload_cpu_cache_read_usage_perc": max(used - writing, 0.0),
            "kv_offload_stores_skipped": skipped,
        }
