"""JSON lines: one event a line, vLLM's KV events and the placement rows between them, in the engine's order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from simkv.events.digests import Digests
from simkv.events.export.columns import ARG_NAMES, GROUP_KINDS
from simkv.events.export.kv_events import KVEventFold, kv_events, rows
from simkv.events.export.output import replacing
from simkv.events.layout import KIND_NAMES
from simkv.events.log import EventLog
from simkv.events.types import BlockRemoved, BlockStored, KVEvent

NO_REQUEST = "null"


def write_jsonl(
    log: EventLog, digests: Digests, target: Path, *, info: dict[str, Any] | None = None, placement: bool = True, tokens: bool = True
) -> int:
    """Write the log as JSON lines and return how many events were written.

    The first line, ``{"event": "header", …}``, describes the run. Every other line has ``time`` (seconds, or the step
    index of a run in steps), ``replica``, ``step`` and ``event``. Digests are hexadecimal.

    Args:
        target: file to write; an existing one is replaced once the new one is complete.
        info: more for the header line (settings, source).
        placement: also write which block went where (``allocated``, ``hit``, ``freed_back``, …).
        tokens: write ``token_ids`` (most of the file's size).
    """
    times = log.steps["time"].tolist()
    with replacing(target) as out:
        out.write(json.dumps({"event": "header", **log.header, **(info or {})}) + "\n")
        if placement:
            return _all_rows(log, digests, out, times, tokens)
        count = 0
        for step, event in kv_events(log, digests):
            out.write(_head(times, step) + _content(event, tokens))
            count += 1
        return count


def _all_rows(log: EventLog, digests: Digests, out: IO[str], times: list[float], tokens: bool) -> int:
    fold = KVEventFold(log.header, digests)
    names = [json.dumps(digests.workload.id(i)) for i in range(len(digests.workload))]
    with_group = len(log.header["groups"]) > 1
    before, count, head = -1, 0, ""
    for step, req, arg, what, group in rows(log):
        if step != before:
            for event in fold.flush():
                out.write(head + _content(event, tokens))
                count += 1
            before, head = step, _head(times, step)
        for event in fold.row(req, arg, what, group):
            out.write(head + _content(event, tokens))
            count += 1
        value = f', "{ARG_NAMES[what]}": {arg}' if what in ARG_NAMES else ""
        part = f', "group_idx": {group}' if with_group and what in GROUP_KINDS else ""
        out.write(f'{head}"event": "{KIND_NAMES[what]}", "request": {names[req] if req >= 0 else NO_REQUEST}{value}{part}}}\n')
        count += 1
    for event in fold.flush():
        out.write(head + _content(event, tokens))
        count += 1
    return count


def _head(times: list[float], step: int) -> str:
    return f'{{"time": {times[step]!r}, "replica": 0, "step": {step}, '


def _content(event: KVEvent, tokens: bool) -> str:
    fields: dict[str, Any] = {"event": type(event).__name__}
    if isinstance(event, BlockStored):
        fields["block_hashes"] = [h.hex() for h in event.block_hashes]
        fields["parent_block_hash"] = None if event.parent_block_hash is None else event.parent_block_hash.hex()
        if tokens:
            fields["token_ids"] = event.token_ids
        fields |= {"block_size": event.block_size, "lora_name": event.lora_name, "extra_keys": event.extra_keys}
        fields |= {"group_idx": event.group_idx, "medium": event.medium}
    elif isinstance(event, BlockRemoved):
        fields |= {"block_hashes": [h.hex() for h in event.block_hashes], "group_idx": event.group_idx, "medium": event.medium}
    return json.dumps(fields)[1:] + "\n"
