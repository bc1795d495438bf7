"""From placement rows to vLLM's KV events: which digests entered the prefix cache and which left it.

The log says which physical block got a key; the digest follows from the request that stored it and the block's place
in that request's table. One pass, in log order; state is the blocks that hold a key and the tables of live requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simkv.events import layout as kind
from simkv.events.digests import Digests, lora_name
from simkv.events.layout import KIND_BITS, KIND_MASK
from simkv.events.log import EventLog
from simkv.events.types import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent

ROWS_AT_ONCE = 1 << 16
"""Rows turned into Python numbers at a time: bounds memory, not the log's length."""

_CONTENT = (
    kind.RECYCLED,
    kind.HIT,
    kind.STORE,
    kind.STORED,
    kind.STORED_EXTRA,
    kind.REMOVED_EXTRA,
    kind.CLEARED,
    kind.SKIPPED,
    kind.PREEMPTED,
    kind.FINISHED,
    kind.ABORTED,
)


class KVEventFold:
    """Turns rows into KV events. ``row()`` returns the events that are complete with it, ``flush()`` the last one.

    Args:
        header: ``EventLog.header``.
        digests: of the same workload, with the log's ``hash_block_size``.
    """

    def __init__(self, header: Mapping[str, Any], digests: Digests) -> None:
        self._digests = digests
        self._hash_block: int = header["hash_block_size"]
        self._block_size = [int(g["block_size"]) for g in header["groups"]]
        self._sparse = [g["type"] != "full" for g in header["groups"]]
        self._held: dict[int, list[tuple[bytes, int]]] = {}
        self._table: dict[tuple[int, int], list[int]] = {}
        self._announced: dict[tuple[int, int], int] = {}
        self._open: tuple[int, int, int, int, list[int]] | None = None

    def row(self, req: int, arg: int, what: int, group: int) -> list[KVEvent]:
        """Take one row of the log. ``what`` and ``group`` are the two parts of its ``kind``."""
        if what == kind.STORED:
            self._stored(req, arg, group)
            return []
        out = self.flush()
        if what == kind.STORE:
            self._open = (req, group, self._announced.get((req, group), 0), arg, [])
            self._announced[req, group] = arg
        elif what == kind.STORED_EXTRA:
            out.append(self._stored_extra(req, arg, group))
        elif what in (kind.RECYCLED, kind.REMOVED_EXTRA):
            keys = self._held[arg]
            digest, of_group = keys.pop(0)
            if not keys:
                del self._held[arg]
            out.append(BlockRemoved((digest,), of_group))
            if what == kind.RECYCLED and self._sparse[group]:
                self._table.setdefault((req, group), []).append(arg)
        elif what == kind.HIT:
            self._announced[req, group] = self._announced.get((req, group), 0) + 1
            if self._sparse[group]:
                self._table.setdefault((req, group), []).append(arg)
        elif what == kind.ALLOCATED:
            if self._sparse[group]:
                self._table.setdefault((req, group), []).append(arg)
        elif what == kind.SKIPPED:
            self._announced[req, group] = arg
            self._table[req, group] = [0] * arg
        elif what == kind.CLEARED:
            self._held.clear()
            out.append(AllBlocksCleared())
        elif what in (kind.PREEMPTED, kind.FINISHED, kind.ABORTED):
            for g in range(len(self._block_size)):
                self._table.pop((req, g), None)
                self._announced.pop((req, g), None)
        return out

    def flush(self) -> list[KVEvent]:
        """The BlockStored that was being gathered, if any."""
        if self._open is None:
            return []
        req, group, first, full, indices = self._open
        self._open = None
        size = self._block_size[group]
        per, digests = size // self._hash_block, self._digests.of(req)
        keys = tuple(self._digests.published_keys(req, i * size, (i + 1) * size) for i in indices)
        return [
            BlockStored(
                block_hashes=tuple(digests[(i + 1) * per - 1] for i in indices),
                parent_block_hash=digests[first * per - 1] if first else None,
                token_ids=tuple(self._digests.tokens(req)[first * size : full * size].tolist()),
                block_size=size,
                lora_name=lora_name(self._digests.workload, req),
                extra_keys=keys or None,
                group_idx=group,
            )
        ]

    def _stored(self, req: int, block: int, group: int) -> None:
        if self._open is None or self._open[:2] != (req, group):
            raise ValueError(f"row stored of request {req}, group {group} without its store row")
        _, _, first, _, indices = self._open
        start = indices[-1] + 1 if indices else first
        index = self._table[req, group].index(block, start) if self._sparse[group] else start
        indices.append(index)
        per = self._block_size[group] // self._hash_block
        self._held.setdefault(block, []).append((self._digests.of(req)[(index + 1) * per - 1], group))

    def _stored_extra(self, req: int, block: int, group: int) -> KVEvent:
        """The last hash boundary of a prompt inside a bigger block (hybrid models)."""
        size, digests = self._hash_block, self._digests.of(req)
        count = (int(self._digests.workload.num_prompt[req]) - 1) // size
        self._held.setdefault(block, []).append((digests[count - 1], group))
        return BlockStored(
            block_hashes=(digests[count - 1],),
            parent_block_hash=digests[count - 2] if count > 1 else None,
            token_ids=tuple(self._digests.tokens(req)[(count - 1) * size : count * size].tolist()),
            block_size=size,
            lora_name=lora_name(self._digests.workload, req),
            extra_keys=(self._digests.published_keys(req, (count - 1) * size, count * size),),
            group_idx=group,
        )


def rows(log: EventLog, wanted: tuple[int, ...] | None = None) -> Iterator[tuple[int, int, int, int, int]]:
    """``(step, req, arg, what, group)`` of every row of the log, or only of the kinds wanted."""
    first = log.steps["first_event"]
    mask = None if wanted is None else np.isin(np.arange(1 << 8) & KIND_MASK, wanted)
    for at in range(0, len(log.events), ROWS_AT_ONCE):
        part = log.events[at : at + ROWS_AT_ONCE]
        index = np.arange(at, at + len(part))
        if mask is not None:
            keep = mask[part["kind"]]
            part, index = part[keep], index[keep]
        step = np.searchsorted(first, index, side="right") - 1
        what, group = part["kind"] & KIND_MASK, part["kind"] >> KIND_BITS
        yield from zip(step.tolist(), part["req"].tolist(), part["arg"].tolist(), what.tolist(), group.tolist(), strict=True)


def kv_events(log: EventLog, digests: Digests) -> Iterator[tuple[int, KVEvent]]:
    """``(step, event)`` of everything that entered or left the prefix cache, in the engine's order."""
    fold = KVEventFold(log.header, digests)
    sparse = any(g["type"] != "full" for g in log.header["groups"])
    now = -1
    for step, req, arg, what, group in rows(log, (*_CONTENT, kind.ALLOCATED) if sparse else _CONTENT):
        if step != now:
            for event in fold.flush():
                yield now, event
            now = step
        for event in fold.row(req, arg, what, group):
            yield step, event
    for event in fold.flush():
        yield now, event
