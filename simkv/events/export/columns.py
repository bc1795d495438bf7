"""What the log's ``arg`` means for each kind of row: shared by the exports."""

from __future__ import annotations

from simkv.events import layout as kind

BLOCK_KINDS = (
    kind.ALLOCATED,
    kind.RECYCLED,
    kind.HIT,
    kind.RELEASED,
    kind.FREED_FRONT,
    kind.FREED_BACK,
    kind.STORED,
    kind.STORED_EXTRA,
    kind.REMOVED_EXTRA,
    kind.EVICTED,
    kind.COPIED,
)
"""Rows about one physical block."""

ARG_NAMES: dict[int, str] = {
    **dict.fromkeys(BLOCK_KINDS, "block"),
    kind.STORE: "full_blocks",
    kind.ADMITTED: "hit_tokens",
    kind.RESUMED: "hit_tokens",
    kind.SCHEDULED: "tokens",
    kind.SKIPPED: "null_blocks",
    kind.TRIMMED: "null_blocks",
    kind.ADOPTED: "position",
    kind.HOST_STORED: "chunk",
    kind.HOST_REMOVED: "chunk",
    kind.LOAD_STARTED: "blocks",
    kind.LOADED: "blocks",
    kind.STORE_STARTED: "chunks",
    kind.WRITTEN: "blocks",
}
"""Name of ``arg`` by kind; kinds that are not here have none."""

GROUP_KINDS = (*BLOCK_KINDS, kind.STORE, kind.SKIPPED, kind.TRIMMED, kind.ADOPTED, kind.WRITTEN)
"""Rows that belong to a KV group."""

KEY_KINDS = (kind.STORED, kind.STORED_EXTRA, kind.HOST_STORED)
"""Rows that carry the next entry of the log's ``keys``."""
