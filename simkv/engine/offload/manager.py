"""The chunk manager on its own, called from Python: for recorded scripts, tests and teaching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simkv.engine.offload.build_chunks import build_chunks
from simkv.engine.offload.chunks import find_chunk
from simkv.engine.offload.compiled import entry
from simkv.engine.offload.host import (
    chunk_written,
    clear,
    look_up,
    pin_chunk,
    prepare_store,
    recency_of_key,
    unpin_chunk,
    write_failed,
)
from simkv.engine.offload.layout import B1, B2, HOST_CONFIG, T1, T2
from simkv.engine.offload.policy import touch_key
from simkv.engine.vllm.layout import zeros

LOOKUP, PIN, UNPIN, WRITTEN, FAILED, TOUCH, ENDED, STORE, CLEAR = range(9)
ANSWERS = ("MISS", "HIT", "HIT_PENDING")


@entry
def call(k, hc, operation, count):  # type: ignore[no-untyped-def]
    """One call over the ``count`` chunks named in ``k.offer``; keys from last to first where the engine does so."""
    if operation == STORE:
        return prepare_store(k, hc, count)
    if operation == CLEAR:
        clear(k, hc)
        return 0
    answer = 0
    for j in range(count):
        i = count - 1 - j if operation in (TOUCH, ENDED) else j
        key, place = k.offer[i], k.places[i]
        if operation == LOOKUP:
            answer = look_up(k, key)
        elif operation == PIN:
            k.taken[i] = pin_chunk(k, key, place)
        elif operation == TOUCH:
            touch_key(k, hc.arc, hc.chunks, key)
        elif operation == ENDED:
            recency_of_key(k, hc, key, place)
        else:
            x = find_chunk(k, key)
            if operation == UNPIN:
                unpin_chunk(k, x)
            elif x > 0 and k.nodes[x].ref < 0:
                if operation == WRITTEN:
                    chunk_written(k, x)
                else:
                    write_failed(k, x)
                answer += 1
    return answer


class ChunkManager:
    """``CPUOffloadingManager`` of vLLM 0.32: keys are whole numbers, requests are given with the keys of their prompt in order.

    Args:
        chunks: capacity.
        policy: ``lru`` or ``arc``.
        store_threshold: offers from which a chunk is stored (0 and 1: at once).
        max_tracker_size: keys whose offers are counted.
    """

    def __init__(self, chunks: int, policy: str = "lru", store_threshold: int = 0, max_tracker_size: int = 64_000) -> None:
        self.config = zeros(1, HOST_CONFIG)
        c = self.config[0]
        c.chunks, c.arc, c.threshold, c.tracked = chunks, policy == "arc", store_threshold, max_tracker_size
        tracked = max_tracker_size if store_threshold >= 2 else 0
        self.chunks = build_chunks(chunks, arc=policy == "arc", tracked=tracked, flags=1, longest_offer=0)
        self.requests: dict[Any, tuple[dict[int, int], int]] = {}
        self.signalled: set[Any] = set()

    def new_request(self, name: Any, keys: list[int]) -> None:
        """A request and the keys it may name, in order of position."""
        first = len(self.chunks.flags)
        more = np.zeros(first + len(keys), np.uint8)
        more[:first] = self.chunks.flags
        n = max(len(keys), len(self.chunks.offer)) + 1
        self.chunks = self.chunks._replace(
            flags=more, offer=np.zeros(n, np.uint64), places=np.zeros(n, np.int64), taken=np.zeros(n, np.int32)
        )
        self.requests[name] = {key: first + i for i, key in enumerate(keys)}, int(self.chunks.manager[0].generation)

    def _call(self, operation: int, name: Any, keys: list[int]) -> int:
        places = self._places(name)
        self.chunks.offer[: len(keys)] = keys
        self.chunks.places[: len(keys)] = [places.get(key, 0) for key in keys]
        return int(call(self.chunks, self.config[0], operation, len(keys)))

    def _places(self, name: Any) -> dict[int, int]:
        places, generation = self.requests.get(name, ({}, 0))
        now = int(self.chunks.manager[0].generation)
        if generation != now and places:
            self.chunks.flags[list(places.values())] = 0
            self.requests[name] = places, now
            self.signalled.discard(name)
        return places

    def lookup(self, key: int) -> str:
        """``HIT``, ``HIT_PENDING`` (being written) or ``MISS``."""
        return ANSWERS[self._call(LOOKUP, None, [key])]

    def prepare_load(self, name: Any, keys: list[int]) -> list[int]:
        """Pin chunks that are in host memory; their ids."""
        self._call(PIN, name, keys)
        chunk_of = self.chunks.nodes["chunk"]
        return [int(chunk_of[x]) for x in self.chunks.taken[: len(keys)]]

    def complete_load(self, name: Any, keys: list[int]) -> None:
        """Release what ``prepare_load`` pinned."""
        self._call(UNPIN, name, keys)

    def prepare_store(self, name: Any, keys: list[int]) -> tuple[list[int], list[int], list[int]] | None:
        """``(keys to store, their chunk ids, evicted keys)``, or ``None`` if there is no room for all of them."""
        count = self._call(STORE, name, keys)
        if count < 0:
            return None
        nodes = self.chunks.nodes[self.chunks.taken[:count]]
        evicted = self.chunks.picked_keys[: int(self.chunks.manager[0].evicted)]
        return [int(x) for x in nodes["key"]], [int(x) for x in nodes["chunk"]], [int(x) for x in evicted]

    def complete_store(self, name: Any, keys: list[int], success: bool = True) -> int:
        """The chunks have been written, or could not be; how many were waiting for it."""
        return self._call(WRITTEN if success else FAILED, name, keys)

    def touch(self, keys: list[int]) -> None:
        """Make chunks recent, the first of them most."""
        self._call(TOUCH, None, keys)

    def finish(self, name: Any) -> None:
        """The request has ended: what it stored, loaded or offered again becomes recent, its head most."""
        if self.requests[name][1] == int(self.chunks.manager[0].generation) and name not in self.signalled:
            self.signalled.add(name)
            self._call(ENDED, name, list(self.requests[name][0]))

    def reset(self) -> None:
        """Forget all chunks."""
        self._call(CLEAR, None, [])

    def state(self) -> dict[str, Any]:
        """Plain values: free stack, counts and lists; ``[key, readers or -1, chunk id]`` a chunk."""
        return manager_state(self.chunks, bool(self.config[0].arc))


def nodes_of(chunks: Any, place: int) -> list[int]:
    """Nodes of a list, least recently used first."""
    out, x = [], int(chunks.nodes[place].next)
    while x != place:
        out.append(x)
        x = int(chunks.nodes[x].next)
    return out


def manager_state(chunks: Any, arc: bool, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """A manager's state as plain values, in the form recordings have; ``names`` replace keys."""
    m = chunks.manager[0]

    def name(key: Any) -> Any:
        return int(key) if names is None else names[int(key)]

    def entries(place: int) -> list[list[Any]]:
        return [[name(x.key), int(x.ref), int(x.chunk)] for x in (chunks.nodes[i] for i in nodes_of(chunks, place))]

    out: dict[str, Any] = {
        "free": chunks.free[: int(m.free)].tolist(),
        "nalloc": int(m.fresh),
        "evictable": int(m.evictable),
        "wpend": int(m.pending),
    }
    if not arc:
        return {**out, "lru": entries(T1)}
    ghosts = {which: [name(chunks.nodes[x].key) for x in nodes_of(chunks, place)] for which, place in (("b1", B1), ("b2", B2))}
    return {**out, "t1": entries(T1), "t2": entries(T2), **ghosts, "p": int(m.p) if m.p_whole else float(m.p)}
