"""Recorded runs with a host tier: what Replay compares, and every call, copy and chunk of the connector."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from simkv.conformance.offload_trace import Trace
from simkv.conformance.offload_wire import HostWire
from simkv.conformance.vllm_log import Replay
from simkv.engine.offload import layout
from simkv.engine.offload.manager import manager_state
from simkv.engine.vllm.engine import DONE, STALLED, VllmEngine
from simkv.events import layout as ev
from simkv.events.digests import Digests
from simkv.workload.workload import Workload

LOCAL = ("requests", "queries", "hits", "recompute_requests", "recompute_queries", "recompute_hits")
TOTALS = {
    "steps": "steps",
    "tokens": "tokens",
    "finished": "finished",
    "preemptions": "preemptions",
    "queries": "queries",
    "hits": "hits",
    "preempted_queries": "recompute_queries",
    "preempted_hits": "recompute_hits",
}
HOST_TOTALS = {
    "x_queries": "queries",
    "x_hits": "hits",
    "x_preempted_queries": "recompute_queries",
    "x_preempted_hits": "recompute_hits",
    "cpu_evicted": "removed",
    "store_fail": "refused",
}


class OffloadReplay(Replay):
    """One replay with a host tier beside its recording."""

    def __init__(self, name: str, engine: VllmEngine, workload: Workload) -> None:
        super().__init__(name, engine, workload)
        self.host = engine.state.host
        self.native = engine.state.native is not None
        offload = engine.settings.offload
        assert offload is not None
        self.per_chunk = offload.blocks_per_chunk
        s = engine.settings
        digests = Digests(
            workload, s.hash_block_size, s.hash_algo, tagged=s.profile.tagged_extra_keys, lora_path=s.profile.lora_path_in_key
        )
        self.digests = [[h.hex() for h in digests.of(r)] for r in range(len(workload))]
        self.host_wire = HostWire(engine, self.digests)
        self.host_statistics = [0] * 6
        self.before = {"refused": 0, "skipped": 0}
        self.trace: Trace | None = None

    def _names(self) -> Trace:
        """The connector's calls; the first look comes after the log's first record said how long keys are."""
        if self.trace is None:
            step = self.per_chunk
            self.trace = Trace(self.engine, self.workload, [[h[: self.hash_hex] for h in of[step - 1 :: step]] for of in self.digests])
        return self.trace

    def _turn(self, record: dict[str, Any]) -> None:
        self._names()
        super()._turn(record)
        if record.get("sched", 0) is None and self.native:
            self.compare.equal(record["s"], "ops", record["ops"], self._names().take()[0])

    def _stall(self, record: dict[str, Any]) -> None:
        """The recorder gave up after 200 steps in which nothing was scheduled but copies went on."""
        self.engine.advance(pause=True)
        self.compare.equal(record["s"], "stall", 201, int(self.engine.counters.empty_schedules))

    def _scheduled(self, record: dict[str, Any], turn: np.void, rows: np.ndarray) -> None:
        e, equal, step = self.engine.state, self.compare.equal, record["s"]
        held = e.host.hold[: int(e.host.counters[0].held)].tolist()
        equal(step, "hold", record["hold"], [self._held(r) for r in held])
        tables = record.pop("tab", None)
        super()._scheduled(record, turn, rows)
        if tables is not None:
            of = {self._id(e.slots[s].req): self._table(int(s)) for s in e.running[: int(self.engine.counters.running)]}
            equal(step, "tab", tables, of | {self._id(r): self._table(int(e.host.reqs[r].slot)) for r in held})
        equal(step, "pool", record["pool"], [int(self.engine.counters.free), int(self.engine.counters.cached)])
        calls, _ = self._names().take()
        equal(step, "ops", record["ops"], calls)
        equal(step, "loads", record["loads"], self._copies(layout.LOAD))
        equal(step, "stores", record["stores"], self._copies(layout.STORE))
        equal(step, "flush", record["flush"], self._flush())
        equal(step, "cpu", record["cpu"], self._host_state(record["cpu"]))

    def _held(self, r: int) -> list[Any]:
        q, req = self.engine.state.host.reqs[r], self.engine.state.reqs[r]
        status = "WAITING_FOR_REMOTE_KVS" if q.loading != layout.NOT_LOADING else "PREEMPTED" if req.preempted else "WAITING"
        return [self._id(r), status, int(self.engine.state.slots[q.slot].computed)]

    def _given(self, direction: int) -> list[int]:
        """Jobs that the batch just scheduled ordered."""
        host = self.engine.state.host
        j = int(host.queues[layout.GIVEN + 2 * (1 - int(self.engine.counters.batch)) + direction].head)
        out = []
        while j:
            out.append(j)
            j = int(host.jobs[j].next)
        return out

    def _copies(self, direction: int) -> list[Any]:
        e = self.engine.state
        if not self.native:
            return self.host_wire.simple_copies(self._given(direction), direction)
        out = []
        for j in self._given(direction):
            job = e.host.jobs[j]
            chunks = self.host_wire.chunks_of(j)
            if direction == layout.LOAD:
                row = self._table(int(e.host.reqs[job.req].slot))[int(job.head) : int(job.head) + int(job.blocks)]
                out.append([int(job.number), self._id(job.req), chunks, row, int(job.head)])
            else:
                n = self.per_chunk
                blocks = [int(b) for c in chunks for b in e.native.sources[c * n : (c + 1) * n]]
                out.append([int(job.number), self._id(job.req), blocks, chunks, int(job.first) * n])
        return out

    def _flush(self) -> Any:
        host, bit = self.engine.state.host, 1 << (1 - int(self.engine.counters.batch))
        if not self.native:
            return bool(host.counters[0].flushing & bit)
        out, j = [], int(host.jobs[0].after)
        while j:
            if int(host.jobs[j].flush) & bit:
                out.append(int(host.jobs[j].number))
            j = int(host.jobs[j].after)
        return out

    def _host_state(self, recorded: Any) -> Any:
        state = self.host_wire.state(self.hash_hex)
        if self.native:
            state = manager_state(
                self.engine.state.native.chunks, bool(self.engine.state.host.config[0].arc), self.host_wire.names(self.hash_hex)
            )
        return state if isinstance(recorded, dict) else zlib.crc32(json.dumps(state).encode())

    def _accounts(self, record: dict[str, Any], events: np.ndarray) -> None:
        equal, step = self.compare.equal, record["s"]
        hc = self.engine.state.host.counters[0]
        calls, worker = self._names().take()
        equal(step, "ops2", record["ops2"], calls)
        equal(step, "wk", record["wk"], self.host_wire.worker(worker))
        equal(step, "cpu2", record["cpu2"], self._host_state(record["cpu2"]))
        equal(step, "pc", record["pc"][:6], self._new_statistics() if self.engine.settings.enable_prefix_caching else record["pc"][:6])
        now = [int(hc[name]) for name in LOCAL]
        new = [a - b for a, b in zip(now, self.host_statistics, strict=True)]
        self.host_statistics = now
        equal(step, "xc", [*record["xc"][:6], record["xc"][7]], [*new, {"host": new[2]} if new[2] else {}])
        self._prefill(record, events)
        equal(step, "cs", record["cs"], self._gauges(hc))
        self.wire.take()
        mine = self.host_wire.merged(self.wire.events(self.hash_hex), self.hash_hex)
        if "ev" in record:
            equal(step, "ev", record["ev"], mine if self.published else [])

    def _prefill(self, record: dict[str, Any], events: np.ndarray) -> None:
        """Where the prompt tokens of requests came from whose first token is out."""
        reqs = self.engine.state.host.reqs
        mine = {}
        for x in events[events["kind"] == ev.FIRST_TOKEN]:
            r = int(x["req"])
            prompt, local, host = int(self.workload.num_prompt[r]), int(reqs[r].hit_local), int(reqs[r].hit_host)
            mine[self._id(r)] = [prompt, local, host, prompt - local - host]
        self.compare.equal(record["s"], "pfs", {k: v[:4] for k, v in record["pfs"].items()}, mine)

    def _gauges(self, hc: Any) -> dict[str, Any]:
        new = {name: int(hc[name]) - was for name, was in self.before.items() if name != "skipped"}
        if not self.native:
            return self.host_wire.simple_gauges()
        m, n = self.engine.state.native.chunks.manager[0], int(self.engine.state.host.config[0].chunks)
        skipped = int(m.skipped) - self.before["skipped"]
        used, writing = int(m.fresh - m.free - m.evictable) / n, int(m.pending) / n
        self.before = {"refused": int(hc.refused), "skipped": int(m.skipped)}
        out: dict[str, Any] = {
            "kv_offload_cpu_cache_usage_perc/()": used,
            "kv_offload_cpu_cache_write_usage_perc/()": writing,
            "kv_offload_cpu_cache_read_usage_perc/()": max(used - writing, 0.0),
        }
        if self._names().allocations:
            out["kv_offload_cpu_allocation_size/()"] = self._names().allocations.copy()
            self._names().allocations.clear()
        if new["refused"]:
            out["kv_offload_allocation_failure/()"] = new["refused"]
        if int(self.engine.state.host.config[0].threshold) >= 2:
            out["kv_offload_stores_skipped/()"] = skipped
        return out

    def _end(self, record: dict[str, Any]) -> None:
        c, hc = self.engine.counters, self.engine.state.host.counters[0]
        if "crash" not in record and "stall" not in record:
            self.compare.equal(None, "end", True, self.engine.advance(pause=True) in (DONE, STALLED))
        if "crash" not in record:
            for name, counter in TOTALS.items():
                self.compare.equal(None, f"total {name}", record[name], self._counter(counter, c))
            for name, counter in HOST_TOTALS.items():
                if "stall" in record and name == "cpu_evicted":
                    continue  # counted from published events, and the last step's were not
                self.compare.equal(None, f"total {name}", record[name], int(hc[counter]))
            self.compare.equal(None, "total deferred_lookups", record["deferred_lookups"], self._names().later)
        self.compare.equal(None, "end cpu", record["cpu"], self._host_state(record["cpu"]))
