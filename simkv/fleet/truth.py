"""What each replica's cache really holds of a request, asked without touching it.

Routers go by what they believe: their own history, or events that arrive late. This is what they are measured against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.state import namespaces
from simkv.engine.vllm import layout
from simkv.fleet.kv.probe import CHAIN, NOTHING, SOURCE, TREE, find_hit_in, probe_caches
from simkv.fleet.kv.request_keys import RequestKeys, request_keys
from simkv.workload.workload import Workload

UNKNOWN = -1


class Truth:
    """Cached prompt tokens of a request on every live replica, as each engine's own lookup would count them now.

    vLLM (find_longest_cache_hit, 0.32.0): whole blocks from the first on, all KV groups together, at most one token less than
    the prompt; 0 for a request that does not read the cache. Blocks in host memory do not count. SGLang (match_prefix,
    0.5.23): whole pages, at most one token less than the prompt. Engines without a prefix cache: 0.

    Args:
        workload: all requests; every engine serves this workload.
        engines: the replicas by slot, ``None`` where there is none.
    """

    def __init__(self, workload: Workload, engines: Sequence[Any]) -> None:
        self.workload = workload
        self._skip = workload.skip_cache
        self._namespace: npt.NDArray[np.int32] | None = None
        self._engines: list[Any] = [None] * len(engines)
        self._states: list[Any] = [None] * len(engines)
        self._vllm = [False] * len(engines)
        self._sources = np.zeros(len(engines), SOURCE)
        self._unknown = np.full(len(engines), UNKNOWN, np.int32)
        self._keys: list[Any] = [None] * len(engines)
        self._scratch: list[Any] = [None] * len(engines)
        self._live: list[int] = []
        self._groups: list[tuple[RequestKeys, npt.NDArray[np.int64]]] = []
        self._hybrid: list[int] = []
        for slot, engine in enumerate(engines):
            self.replace(slot, engine)

    def replace(self, slot: int, engine: Any | None) -> None:
        """Another engine (a restarted one), or none, serves from this slot on."""
        self._engines[slot], self._states[slot], self._scratch[slot] = engine, None, None
        self._live = []
        if engine is None:
            return
        s = engine.settings
        self._vllm[slot] = s.engine == "vllm"
        self._keys[slot] = request_keys(self.workload, s.hash_block_size, s.lora_path_in_key)
        if s.engine == "sglang" and self._namespace is None:
            self._namespace = namespaces(self.workload)[0]
        self._look(slot)

    def cached(self, req: int, live: Sequence[int]) -> npt.NDArray[np.int32]:
        """Tokens of request ``req``'s prompt that are cached, shape ``[W]``; -1 where a replica is not in ``live``."""
        if self._live != live:
            self._regroup(list(live))
        for slot in live:
            if self._states[slot] is not self._engines[slot].state:
                self._look(slot)
        out = self._unknown.copy()
        namespace = 0 if self._namespace is None else int(self._namespace[req])
        for keys, which in self._groups:
            probe_caches(*keys.state, self._sources, which, req, namespace, out)
        for slot in self._hybrid:
            out[slot] = self._find_hit(slot, req)
        if self._skip is not None and self._skip[req]:
            for slot in live:
                out[slot] = 0 if self._vllm[slot] else out[slot]
        return out

    def _regroup(self, live: list[int]) -> None:
        """One compiled call for all replicas whose keys are the same."""
        members: dict[int, tuple[RequestKeys, list[int]]] = {}
        self._hybrid = [slot for slot in live if self._scratch[slot] is not None]
        for slot in live:
            if self._scratch[slot] is None:
                members.setdefault(id(self._keys[slot]), (self._keys[slot], []))[1].append(slot)
        self._groups = [(keys, np.array(slots, np.int64)) for keys, slots in members.values()]
        self._live = live

    def _look(self, slot: int) -> None:
        """Note where the replica's arrays lie; they move when it grows."""
        engine, source = self._engines[slot], self._sources[slot]
        e, s = engine.state, engine.settings
        self._states[slot] = e
        source.kind, source.page = NOTHING, s.block_size
        if not s.enable_prefix_caching:
            return
        if not self._vllm[slot]:
            source.kind, entries = TREE, e.nodes
        elif len(e.groups) == 1 and e.groups[0].window == 0:
            group = e.groups[0]
            source.kind, source.page, entries = CHAIN, group.block_size, e.blocks
            source.key, source.stride, source.granularity = group.key, group.stride, s.scheduler_block_size
        else:
            self._scratch[slot] = self._room_for_lookup(engine)
            return
        source.entries, source.num_entries = entries.ctypes.data, len(entries)
        source.table, source.table_size = e.table.ctypes.data, len(e.table)

    def _room_for_lookup(self, engine: Any) -> Any:
        """The engine's arrays, with others in place of those a lookup writes to."""
        e = engine.state
        c = layout.zeros(1, layout.COUNTERS)[0]
        return e._replace(
            groups=e.groups.copy(), tables=e.tables[: len(e.groups)].copy(), keys=np.zeros((1, e.keys.shape[1]), np.uint64)
        ), c

    def _find_hit(self, slot: int, req: int) -> int:
        """Several KV groups, or a sliding window: the engine's own lookup, on arrays of our own."""
        scratch, c = self._scratch[slot]
        keys = self._keys[slot].of(req)
        scratch.keys[0, : len(keys)] = keys
        return int(find_hit_in(scratch, self._engines[slot].config, c, int(self.workload.num_prompt[req])))
