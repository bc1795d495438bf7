"""One KV cache group: which blocks a request needs, finds and leaves behind in it.

Rules of vllm/v1/core/single_type_kv_cache_manager.py, 0.32.0. Lengths are in tokens unless they are called blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from simkv.settings import KVGroup
from tests.engine.reference_pool import NULL, BlockPool


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class FullGroup:
    """Full attention: every block is needed to the end; a prefix is a run of blocks from the first on."""

    window: int | None = None

    def __init__(self, index: int, block_size: int) -> None:
        self.index, self.block_size = index, block_size

    @property
    def kind(self) -> tuple[int | None, int]:
        """Groups of one kind are looked up together."""
        return self.window, self.block_size

    def skipped_blocks(self, computed: int) -> int:
        """Whole blocks no later token attends to once ``computed`` tokens are computed."""
        return 0

    def gate_cap(self, blocks: int) -> int:
        """Most blocks the full-prompt gate asks for."""
        return blocks

    def keeps(self, i: int, scheduler_block: int, retention: int | None, boundaries: Sequence[int]) -> bool:
        """Whether full block ``i`` is worth a key."""
        return True

    def find(self, keys: Sequence[int], hash_block: int, limit: int, members: Sequence[int], pool: BlockPool, align: int) -> Found:
        """The longest run of cached blocks from the first on, cut to a multiple of ``align`` tokens."""
        found = Found(members)
        for i in range(limit // self.block_size):
            blocks = blocks_of(keys, (i + 1) * self.block_size // hash_block - 1, members, pool)
            if blocks is None:
                break
            found.append(blocks)
        found.tokens = found.blocks * self.block_size // align * align
        found.cut(found.tokens // self.block_size)
        return found


class SlidingGroup(FullGroup):
    """Sliding window: a token attends to the ``window - 1`` tokens before it.

    Args:
        most_in_flight: tokens one request can have under way (budget, doubled with async scheduling).
    """

    def __init__(self, index: int, block_size: int, window: int, most_in_flight: int, max_model_len: int) -> None:
        super().__init__(index, block_size)
        self.window = window
        self.need = ceil_div(window - 1, block_size)
        """Blocks that must stand directly before a position to resume there."""
        self._gate_cap = ceil_div(min(window - 1 + most_in_flight, max_model_len), block_size) + 1

    def skipped_blocks(self, computed: int) -> int:
        assert self.window is not None
        return max(0, computed - self.window + 1) // self.block_size

    def gate_cap(self, blocks: int) -> int:
        return min(blocks, self._gate_cap)

    def keeps(self, i: int, scheduler_block: int, retention: int | None, boundaries: Sequence[int]) -> bool:
        """Only blocks a later request can resume on: the last ``need`` of a segment or before a boundary.

        ``retention`` None keeps segments of one scheduler block (dense), 0 no segments, else segments of that length.
        """
        segment = scheduler_block if retention is None else retention
        if segment:
            per_segment = segment // self.block_size
            if i % per_segment >= per_segment - self.need:
                return True
        if retention is None:
            return False
        ends = [boundary // scheduler_block * scheduler_block // self.block_size for boundary in boundaries]
        return any(end - self.need <= i < end for end in ends)

    def find(self, keys: Sequence[int], hash_block: int, limit: int, members: Sequence[int], pool: BlockPool, align: int) -> Found:
        """The rightmost position (a multiple of ``align``) whose window is cached; what lies left of it is null.

        A shorter run counts when it starts with the first block, for then the window is complete.
        """
        run: list[list[int]] = []  # right to left
        for i in range(limit // self.block_size - 1, -1, -1):
            blocks = blocks_of(keys, (i + 1) * self.block_size // hash_block - 1, members, pool)
            if blocks is None:
                run = []
                continue
            if not run and (i + 1) * self.block_size % align != 0:
                continue
            run.append(blocks)
            if len(run) >= self.need:
                return self._found(members, i, run)
        while len(run) * self.block_size % align != 0:
            run = run[1:]
        return self._found(members, 0, run)

    def _found(self, members: Sequence[int], nulls: int, run: Sequence[list[int]]) -> Found:
        found = Found(members)
        for _ in range(nulls):
            found.append([NULL] * len(members))
        for blocks in reversed(run):
            found.append(blocks)
        found.tokens = found.blocks * self.block_size
        return found


class Found:
    """What a lookup found in the groups of one kind: ``tables[group]`` and the length in tokens."""

    def __init__(self, members: Sequence[int]) -> None:
        self.tables: dict[int, list[int]] = {g: [] for g in members}
        self.tokens = 0

    @property
    def blocks(self) -> int:
        return len(next(iter(self.tables.values())))

    def append(self, blocks: Sequence[int]) -> None:
        for table, block in zip(self.tables.values(), blocks, strict=True):
            table.append(block)

    def cut(self, blocks: int) -> None:
        for table in self.tables.values():
            del table[blocks:]


def blocks_of(keys: Sequence[int], position: int, members: Sequence[int], pool: BlockPool) -> list[int] | None:
    """One block per group of the kind, or ``None`` if any of them lacks the key."""
    blocks = [pool.oldest((keys[position], g)) for g in members]
    return None if None in blocks else [b for b in blocks if b is not None]


def build_groups(groups: Sequence[KVGroup], most_in_flight: int, max_model_len: int) -> list[FullGroup]:
    """The groups of the settings, in their order."""
    out: list[FullGroup] = []
    for index, group in enumerate(groups):
        assert group.block_size is not None
        if group.type == "sliding":
            assert group.window is not None
            out.append(SlidingGroup(index, group.block_size, group.window, most_in_flight, max_model_len))
        else:
            out.append(FullGroup(index, group.block_size))
    return out
