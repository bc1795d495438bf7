"""The calls of a connector during a replay, as recordings have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simkv.engine.offload.trace import T_ALLOC, T_ENDED, T_GET, T_LOADED, T_OFFER, T_PIN, T_RECEIVED, T_RESET, T_STORED, T_SUBMIT, T_WAIT
from simkv.engine.vllm.engine import VllmEngine
from simkv.errors import InputError
from simkv.workload.workload import Workload

ANSWERS = "MHP"
DIRECTIONS = ("store", "load")


class Trace:
    """Reads what the compiled core wrote since the last look.

    Args:
        names: per request the key of each of its chunks, as recordings write it.
    """

    def __init__(self, engine: VllmEngine, workload: Workload, names: list[list[str]]) -> None:
        self.engine, self.workload, self.names = engine, workload, names
        self.native = engine.state.native is not None
        self.key_of: dict[int, str] = {}
        """Key of the content of each chunk id."""
        self.allocations: list[int] = []
        self.later = 0
        """Lookups answered with "ask again later"."""
        engine.trace_connector()

    def take(self) -> tuple[list[Any], list[Any]]:
        """``(calls of the scheduler's side, calls of the worker's side)`` since the last look."""
        host = self.engine.state.host
        count = int(host.counters[0].traced)
        if count >= len(host.trace):
            raise InputError("more calls of the connector in one step than the trace holds", file=self.workload.name)
        numbers = iter(host.trace[:count].tolist())
        host.counters[0].traced = 0
        calls: list[Any] = []
        worker: list[Any] = []
        for code in numbers:
            if code >= T_SUBMIT:
                worker.append(self._worker(code, numbers))
                if code == T_RECEIVED and len(worker) > 1 and worker[-2][0] == "recv":
                    worker[-2][1] += worker.pop()[1]
            else:
                calls.append(self._call(code, numbers))
        return calls, worker

    def _id(self, r: int) -> str:
        return self.workload.id(r)

    def _call(self, code: int, it: Iterator[int]) -> list[Any]:
        if code == T_RESET:
            self.key_of.clear()
            return ["RS"]
        r = next(it)
        if code == T_GET:
            local, found, looked = next(it), next(it), next(it)
            self.later += found < 0
            answers = "".join(ANSWERS[next(it)] for _ in range(looked))
            return ["get", self._id(r), local, None if found < 0 else found, found > 0, answers]
        if code == T_ALLOC:
            return ["alloc", self._id(r), next(it)]
        if code == T_ENDED:
            return ["RF", self._id(r)]
        if code == T_STORED:
            return ["CS", self._id(r), sorted(self.key_of[next(it)] for _ in range(next(it)))]
        first, stop = next(it), next(it)
        keys = self.names[r][first:stop]
        if code == T_PIN:
            return ["PL", self._id(r), keys, [next(it) for _ in keys]]
        if code == T_LOADED:
            return ["CL", self._id(r), sorted(keys)]
        assert code == T_OFFER, code
        return self._offer(r, keys, first, it)

    def _offer(self, r: int, keys: list[str], first: int, it: Iterator[int]) -> list[Any]:
        new = next(it)
        taken = [self.names[r][next(it)] for _ in range(max(new, 0))]
        chunks = [next(it) for _ in taken]
        wanted, gone = next(it), next(it)
        evicted = [self.key_of.pop(next(it)) for _ in range(gone)]
        self.key_of.update(zip(chunks, taken, strict=True))
        if wanted:
            self.allocations.append(wanted)
        return ["PS", self._id(r), keys, *((None, None, None) if new < 0 else (taken, chunks, evicted))]

    def _worker(self, code: int, it: Iterator[int]) -> list[Any]:
        if code == T_RECEIVED:
            return ["recv", [self._id(next(it))]]
        direction = DIRECTIONS[next(it)]
        if code == T_WAIT:
            return ["wait", direction, [next(it) for _ in range(next(it))]]
        return ["sub" if code == T_SUBMIT else "done", direction, next(it)]
