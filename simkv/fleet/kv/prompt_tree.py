"""Requests under way by worker, with the blocks they hold; Python's side of prompts.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.layout import power_of_two
from simkv.fleet.kv.compiled import entry
from simkv.fleet.kv.prompts import HALF, LOW, META, NODE, REQUEST, WORKER, Prompts, count_believed, node_place, sweep
from simkv.fleet.kv.request_keys import RequestKeys
from simkv.fleet.kv.reservations import finish, leave_worker, prefilled, report_output, reserve

FIRST_NODES, FIRST_KEYS = 1 << 10, 1 << 14
NOTHING = np.ones((1, 1))


class PromptTree:
    """Blocks of the prompts under way.

    Args:
        keys: of the requests.
        requests, workers: how many there are.
        believes: also keep until when a prompt counts as cached where it went (a router without KV events).
    """

    def __init__(self, keys: RequestKeys, requests: int, workers: int, believes: bool) -> None:
        self.keys = keys
        under_way = np.zeros(requests, REQUEST)
        under_way["worker"] = -1
        self.state = Prompts(
            table=np.zeros(power_of_two(2 * FIRST_NODES), np.uint64),
            nodes=np.zeros(FIRST_NODES, NODE),
            counts=np.zeros((FIRST_NODES, workers), np.int32),
            shares=NOTHING,
            until=np.full((FIRST_NODES, workers), -np.inf) if believes else NOTHING,
            arena=np.zeros((2, FIRST_KEYS), np.uint64),
            meta=np.zeros(1, META),
            workers=np.zeros(workers, WORKER),
            requests=under_way,
        )
        self.meta: Any = self.state.meta[0]
        self.meta.nodes = 1
        # Read for every request: a record's field costs ten times as much.
        self._nodes, self._arena_at = self.state.meta["nodes"], self.state.meta["arena_at"]

    def reserve(self, req: int, worker: int, prefill: int, blocks: int, now: float, until: float) -> None:
        """Request ``req`` with ``blocks`` blocks goes to a worker, ``prefill`` tokens to compute; counts as cached there ``until`` then."""
        if self._nodes[0] + 2 > len(self.state.nodes) or self._arena_at[0] + blocks > self.state.arena.shape[1]:
            self._make_room(blocks, now)
        reserve(*self.state, *self.keys.state, req, worker, prefill, now, until)

    def prefilled(self, req: int) -> None:
        """The prompt is computed."""
        prefilled(self.state.workers, self.state.requests, req)

    def finish(self, req: int, now: float) -> None:
        """The request is over; nothing happens if that is known."""
        finish(*self.state, req, now)

    def leave(self, worker: int, now: float) -> None:
        """A worker left, and everything under way there."""
        leave_worker(self.state, worker, now)

    def report_output(self, req: int, share: float | None) -> None:
        """The request reports one more block of output; with a share, all blocks that only it holds count so much from now on."""
        if share is not None and self.state.shares is NOTHING:
            self.state = self.state._replace(shares=np.ones(self.state.counts.shape))
        report_output(self.state, req, np.nan if share is None else share)

    def count(self, req: int, now: float, out: npt.NDArray[np.int32]) -> None:
        """Leading blocks of request ``req`` that count as cached at each worker, into ``out`` (shape ``[W]``)."""
        believed(self.state, self.keys.state, req, now, out)

    def _make_room(self, blocks: int, now: float) -> None:
        sweep(self.state, now)
        s = self.state
        free, x = 0, int(self.meta.free)
        while x and free < len(s.nodes) // 2:
            free, x = free + 1, int(s.nodes[x].parent)
        if self.meta.nodes + 2 - free > len(s.nodes) // 2:
            n = 2 * len(s.nodes)
            more = {name: larger(getattr(s, name), n, fill) for name, fill in (("nodes", 0), ("counts", 0))}
            more |= {
                name: larger(getattr(s, name), n, fill)
                for name, fill in (("shares", 1.0), ("until", -np.inf))
                if getattr(s, name) is not NOTHING
            }
            s = s._replace(table=np.zeros(power_of_two(2 * n), np.uint64), **more)
            refill(s, self.state.table)
        if 2 * (self.meta.arena_at + blocks) > s.arena.shape[1]:
            arena = np.zeros((2, 2 * (int(self.meta.arena_at) + blocks) + s.arena.shape[1]), np.uint64)
            arena[:, : s.arena.shape[1]] = s.arena
            s = s._replace(arena=arena)
        self.state = s


def larger(array: Any, n: int, fill: float) -> Any:
    """The array with ``n`` rows, new ones filled."""
    out = np.full((n, *array.shape[1:]), fill, array.dtype) if array.dtype.names is None else np.zeros(n, array.dtype)
    out[: len(array)] = array
    return out


@entry
def refill(p, table):  # type: ignore[no-untyped-def]
    """Enter the old table's nodes into the new one."""
    for word in table:
        if word != 0:
            x = np.int64(word & LOW)
            p.table[node_place(p, p.nodes[x].key)] = (p.nodes[x].key << HALF) | np.uint64(x)


@entry
def believed(p, k, req, now, out):  # type: ignore[no-untyped-def]
    """Python's way into ``count_believed``."""
    count_believed(p, k, req, now, out)
