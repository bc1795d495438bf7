"""The host tier's figures as plain numbers."""

from __future__ import annotations

from typing import Any

from simkv.engine.offload.layout import HOST_STATISTICS


def host_figures(e: Any) -> dict[str, int]:
    """HOST_STATISTICS of a replica's state, and what stands in host memory now.

    ``skipped`` counts chunks below the store threshold; ``occupied`` chunks (simple: blocks) hold content or are being written,
    ``pinned`` ones are held by a transfer. The caller adds ``circling``: 1 if an idle engine went on copying without end.
    """
    out = {name: int(e.host.counters[name][0]) for name in HOST_STATISTICS}
    if e.native is not None:
        m = e.native.chunks.manager[0]
        out |= {"skipped": int(m.skipped), "occupied": int(m.fresh - m.free), "pinned": int(m.fresh - m.free - m.evictable)}
    else:
        pool = e.simple.pool[0]
        out |= {"occupied": int(pool.occupied), "pinned": len(e.simple.blocks) - 1 - int(pool.free)}
    return out
