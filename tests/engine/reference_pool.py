"""The block pool as one reads about it: a queue, reference counts, and a dictionary from content to blocks.

Rules of vllm/v1/core/block_pool.py, 0.32.0. Nothing here is shared with the compiled engine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

NULL = 0
"""The null block: stands in block tables for what left a sliding window; never cached, never free."""
Key = tuple[int, int]
"""(chain key of the content up to the block's end, KV group): what the prefix cache knows a block by."""


class BlockPool:
    """Blocks 0 … num_blocks-1, of which block 0 is the null block.

    Args:
        unhashed_to_front: a released block without a key goes to the head of the free queue (0.25 and later); else it
            is appended to the tail together with the others.
    """

    def __init__(self, num_blocks: int, unhashed_to_front: bool) -> None:
        self.num_blocks, self.unhashed_to_front = num_blocks, unhashed_to_front
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.ref = [0] * num_blocks
        self.keys: list[list[Key]] = [[] for _ in range(num_blocks)]
        """Keys of each block: its own first, then extra ones."""
        self.holders: dict[Key, OrderedDict[int, None]] = {}
        """Blocks that carry a key, in order of registration. Equal content is not merged."""
        self.stored = self.removed = 0

    def oldest(self, key: Key) -> int | None:
        """The block a lookup finds: the first one registered with this key."""
        blocks = self.holders.get(key)
        return next(iter(blocks)) if blocks else None

    def register(self, block: int, key: Key) -> None:
        """A block enters the prefix cache (BlockPool.cache_full_blocks)."""
        self.keys[block].append(key)
        self.holders.setdefault(key, OrderedDict())[block] = None
        self.stored += 1

    def allocate(self, count: int) -> list[int]:
        """Take blocks from the head of the queue. One that is still cached is evicted now, and only now."""
        blocks = [self.free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._evict(block)
            self.ref[block] = 1
        return blocks

    def _evict(self, block: int) -> None:
        for key in self.keys[block]:
            del self.holders[key][block]
            if not self.holders[key]:
                del self.holders[key]
            self.removed += 1
        self.keys[block] = []

    def touch(self, blocks: Sequence[int]) -> None:
        """A request uses cached blocks: an idle one leaves the middle of the free queue."""
        for block in blocks:
            if self.ref[block] == 0 and block != NULL:
                del self.free[block]
            self.ref[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """Drop one reference of each block, from the end of the table to its start.

        Those nobody uses any more: without a key to the head of the queue, keeping the visited order; with a key to the
        tail. So the last block of a prompt is evicted before its first.
        """
        front: list[int] = []
        back: list[int] = []
        for block in reversed(table):
            self.ref[block] -= 1
            if block == NULL or self.ref[block] > 0:
                continue
            to_front = self.unhashed_to_front and not self.keys[block]
            (front if to_front else back).append(block)
        for block in reversed(front):
            self.free[block] = None
            self.free.move_to_end(block, last=False)
        for block in back:
            self.free[block] = None

    def reset(self) -> bool:
        """Forget all keys, if no block is in use. The queue keeps its order (BlockPool.reset_prefix_cache)."""
        if len(self.free) != self.num_blocks - 1:
            return False
        self.holders.clear()
        self.keys = [[] for _ in range(self.num_blocks)]
        return True
