"""Host state, copies and host events of a replay in a recording's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.engine.offload import layout
from simkv.engine.offload.manager import nodes_of
from simkv.engine.vllm.chain import chain_keys
from simkv.engine.vllm.engine import VllmEngine
from simkv.events import layout as ev

HOST_KINDS = (ev.HOST_STORED, ev.HOST_REMOVED, ev.HOST_CLEARED, ev.STORE_STARTED)


class HostWire:
    """What a recording says about the host tier.

    Args:
        digests: of every request's blocks, in hexadecimal.
    """

    def __init__(self, engine: VllmEngine, digests: list[list[str]]) -> None:
        self.engine, self.digests = engine, digests
        self.native = engine.state.native is not None
        assert engine.settings.offload is not None
        self.offload = engine.settings.offload
        self.at = engine.mark()
        self.key_at = 0
        self.digest_of: dict[int, str] = {0: ""}
        self.place: dict[int, tuple[int, int]] = {}
        """Of a key: a request that has it, and the block it closes."""
        for r, of in enumerate(digests):
            keys = chain_keys(engine.workload, r, engine.settings.hash_block_size, lora_path=engine.settings.lora_path_in_key)
            for i, (key, digest) in enumerate(zip(keys.tolist(), of, strict=False)):
                self.digest_of[key] = digest
                self.place.setdefault(key, (r, i))
        self.held: dict[int, int] = {}
        self.loaded = 0

    def names(self, digits: int) -> dict[int, str]:
        """Key -> what a recording calls it."""
        return {key: digest[:digits] for key, digest in self.digest_of.items()}

    def chunks_of(self, j: int) -> list[int]:
        """Chunk ids of a native job, in order."""
        e = self.engine.state
        job, k = e.host.jobs[j], e.native.chunks
        if job.direction == layout.LOAD:
            s, n = int(e.host.reqs[job.req].slot), int(e.host.config[0].blocks_per_chunk)
            nodes = [x for place in (layout.T1, layout.T2) for x in nodes_of(k, place)]
            by_key = {int(k.nodes[x].key): int(k.nodes[x].chunk) for x in nodes}
            return [by_key[int(e.keys[s, (i + 1) * n - 1])] for i in range(int(job.first), int(job.stop))]
        out, x = [], int(job.head)
        while x:
            out.append(int(k.nodes[x].chunk))
            x = int(k.nodes[x].job_next)
        return out

    def worker(self, calls: list[Any]) -> list[Any]:
        """The worker's calls; the simple connector reports the stores of a step together, loads by their requests."""
        if self.native:
            return calls
        out = [c for c in calls if c[0] == "sub"]
        done = sorted(c[2] for c in calls if c[0] == "done" and c[1] == "store")
        return out + ([["done", "store", done]] if done else []) + [c for c in calls if c[0] == "recv"]

    def merged(self, device: list[Any], digits: int) -> list[Any]:
        """All events since the last look: the device's, then the host tier's."""
        out = []
        for row in device:
            if row[0] == "S":
                out.append(["S", "GPU", row[1], row[2], len(row[3]), row[4]])
            else:
                out.append(["R", "GPU", row[1]] if row[0] == "R" else ["C"])
        return out + self._host_events(digits)

    def _host_events(self, digits: int) -> list[Any]:
        log = self.engine.event_log()
        assert log is not None
        rows = self.engine.events_since(self.at)
        self.at = self.engine.mark()
        out: list[Any] = []
        run: list[Any] = []
        removed: list[str] | None = None
        for kind, arg in zip(rows["kind"].tolist(), rows["arg"].tolist(), strict=True):
            kind &= ev.KIND_MASK
            if kind in (ev.STORED, ev.STORED_EXTRA):
                self.key_at += 1
            if kind not in HOST_KINDS:
                continue
            if kind == ev.HOST_STORED:
                key = int(log.keys[self.key_at])
                self.key_at += 1
                self.held[arg] = key
                run.append(self._stored(key, digits))
                continue
            out += sorted(run, key=lambda e: e[2]) if self.native else run
            run = []
            if kind == ev.HOST_REMOVED and removed is not None and self.native:
                removed += self._hashes(self.held.pop(arg), digits)
            elif kind == ev.HOST_REMOVED:
                removed = self._hashes(self.held.pop(arg), digits)
                out.append(["R", "CPU", removed])
            else:
                removed = None
            if kind == ev.HOST_CLEARED:
                self.held.clear()
                if not self.native:
                    out.append(["C"])
        return out + (sorted(run, key=lambda e: e[2]) if self.native else run)

    def _hashes(self, key: int, digits: int) -> list[str]:
        """What an event names: the chunk's last block, or all of them."""
        if not self.native or not self.offload.self_describing:
            return [self.digest_of[key][:digits]]
        r, i = self.place[key]
        return [h[:digits] for h in self.digests[r][i + 1 - self.offload.blocks_per_chunk : i + 1]]

    def _stored(self, key: int, digits: int) -> list[Any]:
        size, per, hashes = self.engine.settings.block_size, self.offload.blocks_per_chunk, self._hashes(key, digits)
        if self.native and not self.offload.self_describing:
            return ["S", "CPU", hashes, None, 0, 0]
        if self.offload.lazy:
            return ["S", "CPU", hashes, None, 0, size]
        r, i = self.place[key]
        parent = self.digests[r][i - per][:digits] if i >= per else None
        return ["S", "CPU", hashes, parent, per * size, size]

    def state(self, digits: int) -> dict[str, Any]:
        """Simple connector: its free queue and the blocks in use."""
        if self.native:
            return {}
        m = self.engine.state.simple
        key = [self.digest_of[int(x.key)][:digits] if x.keys else None for x in m.blocks]
        queue, b = [], int(m.blocks[0].free_next)
        while b:
            queue.append([b, 0, key[b]])
            b = int(m.blocks[b].free_next)
        return {"fq": queue, "used": [[int(b), int(m.blocks[b].ref), key[b]] for b in np.flatnonzero(m.blocks["ref"][1:]) + 1]}

    def simple_copies(self, jobs: list[int], direction: int) -> list[Any]:
        """Simple connector: a step's loads are one event, and so are its stores."""
        e, w = self.engine.state, self.engine.workload
        m, out = e.simple, []
        for j in jobs:
            job = e.host.jobs[j]
            if direction == layout.STORE:
                chain = [b := int(job.head)] + [b := int(m.behind[b]) for _ in range(int(job.chunks) - 1)]
                out.append([int(job.number), [int(m.source[b]) for b in chain], chain])
                continue
            names, host, device, r = [], [], [], int(job.req)
            while r >= 0:
                q = e.host.reqs[r]
                names.append(w.id(r))
                span = range(int(q.load_first), int(q.load_first) + int(q.load_blocks))
                host += [self._host_block(int(e.keys[q.slot, i])) for i in span]
                device += [int(e.tables[q.slot, i]) for i in span]
                r = int(q.load_next)
            out.append([int(job.number), names, host, device])
        return out

    def _host_block(self, key: int) -> int:
        """Oldest host block with this key."""
        m = self.engine.state.simple
        return next(int(entry) & 0xFFFF_FFFF for entry in m.table if entry and int(m.blocks[int(entry) & 0xFFFF_FFFF].key) == key)

    def simple_gauges(self) -> dict[str, Any]:
        """Simple connector: its gauges and what it loaded since the last look."""
        pool = self.engine.state.simple.pool[0]
        hc = self.engine.state.host.counters[0]
        loaded = int(hc.load_blocks) - int(hc.loading)
        new, self.loaded = loaded - self.loaded, loaded
        out = {
            "simple_kv_offload_used_blocks/()": self.offload.chunks - int(pool.free),
            "simple_kv_offload_pending_store_blocks/()": int(pool.pending_blocks),
        }
        return out | ({"simple_kv_offload_load_blocks_total/()": new} if new else {})
