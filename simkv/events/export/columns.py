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
}
"""Name of ``arg`` by kind; kinds that are not here have none."""

GROUP_KINDS = (*BLOCK_KINDS, kind.STORE, kind.SKIPPED, kind.TRIMMED)
"""Rows that belong to a KV group."""
