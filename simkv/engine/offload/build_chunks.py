"""Empty arrays of the native tier's chunk manager."""

from __future__ import annotations

import numpy as np

from simkv.engine.offload.layout import FIRST_NODE, MANAGER, NODE, TRACKED, Chunks
from simkv.engine.vllm.layout import power_of_two, zeros


def build_chunks(chunks: int, *, arc: bool, tracked: int, flags: int, longest_offer: int) -> Chunks:
    """Room for ``chunks`` chunks (ARC: and twice as many ghosts).

    Args:
        tracked: keys whose offers are counted; 0 without a store threshold.
        flags: chunks of all requests together.
        longest_offer: chunks of the longest request.
    """
    nodes = chunks * (3 if arc else 1) + 1
    i4 = np.int32
    manager = zeros(1, MANAGER)
    manager[0].spare, manager[0].spare_tracked = nodes, tracked
    heads = np.arange(FIRST_NODE, dtype=i4)
    table = zeros(FIRST_NODE + nodes, NODE)
    for name in ("previous", "next", "place"):
        table[name][:FIRST_NODE] = heads
    counted = zeros(2 + tracked, TRACKED)
    counted["previous"][1] = counted["next"][1] = 1
    return Chunks(
        manager=manager,
        nodes=table,
        table=np.zeros(power_of_two(2 * nodes), np.uint64),
        sizes=np.zeros(FIRST_NODE, np.int64),
        free=np.zeros(chunks, i4),
        spare=np.arange(FIRST_NODE + nodes - 1, FIRST_NODE - 1, -1, dtype=i4),
        tracked=counted,
        tracked_table=np.zeros(power_of_two(2 * tracked + 1), np.uint64),
        spare_tracked=np.arange(tracked + 1, 1, -1, dtype=i4),
        flags=np.zeros(max(flags, 1), np.uint8),
        offer=np.zeros(longest_offer + 1, np.uint64),
        places=np.zeros(longest_offer + 1, np.int64),
        picks=np.zeros(chunks, i4),
        picked_keys=np.zeros(chunks, np.uint64),
        taken=np.zeros(longest_offer + 1, i4),
    )
