"""A replay's KV events in a recording's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.engine.vllm.engine import VllmEngine
from simkv.events import layout as ev
from simkv.events.digests import Digests
from simkv.events.export.kv_events import KVEventFold
from simkv.events.types import AllBlocksCleared, BlockRemoved, KVEvent
from simkv.workload.workload import Workload


class Wire:
    """KV events as the engine would publish them since the last output, in the recording's form."""

    def __init__(self, engine: VllmEngine, workload: Workload) -> None:
        s = engine.settings
        self.engine = engine
        log = engine.event_log()
        assert log is not None
        digests = Digests(
            workload, s.hash_block_size, s.hash_algo, tagged=s.profile.tagged_extra_keys, lora_path=s.profile.lora_path_in_key
        )
        self.fold = KVEventFold(log.header, digests)
        self.several = len(s.groups) > 1
        self.at = engine.mark()
        self.due = engine.events_since(self.at)

    def take(self) -> int:
        """Gather what was written since the last output; returns how many resets it holds."""
        self.due = self.engine.events_since(self.at)
        self.at = self.engine.mark()
        return int(np.count_nonzero(self.due["kind"] == ev.CLEARED))

    def events(self, hex_digits: int) -> list[Any]:
        """What was gathered, in the recording's form."""
        out: list[KVEvent] = []
        for req, arg, kind in self.due.tolist():
            out += self.fold.row(req, arg, kind & ev.KIND_MASK, kind >> ev.KIND_BITS)
        return [self._record(e, hex_digits) for e in out + self.fold.flush()]

    def _record(self, event: KVEvent, hex_digits: int) -> list[Any]:
        if isinstance(event, AllBlocksCleared):
            return ["C"]
        hashes = [h.hex()[:hex_digits] for h in event.block_hashes]
        group = [event.group_idx] if self.several else []
        if isinstance(event, BlockRemoved):
            return ["R", hashes, *group]
        parent = event.parent_block_hash.hex()[:hex_digits] if event.parent_block_hash else None
        extra = [list(k) if k else None for k in event.extra_keys] if event.extra_keys else None
        return ["S", hashes, parent, list(event.token_ids), event.block_size, event.lora_name, extra, *group]
