"""The KV cache manager: prefix lookup over all groups, room for tokens, registration, release.

Rules of vllm/v1/core/kv_cache_manager.py, kv_cache_coordinator.py and single_type_kv_cache_manager.py, 0.32.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simkv.engine.resolve import Resolved
from tests.engine.reference_groups import FullGroup, build_groups, ceil_div
from tests.engine.reference_pool import NULL, BlockPool


@dataclass(eq=False)
class Request:
    """A request as scheduler and cache manager know it. Counts are tokens."""

    index: int
    name: str
    keys: list[int]
    num_prompt: int
    num_output: int
    priority: int
    arrival: float
    lora: int | None
    skip_cache: bool
    status: str = "not arrived"
    num_tokens: int = 0  # prompt and output known so far
    computed: int = 0  # advanced right after schedule()
    in_flight: int = 0  # of those, scheduled but not yet processed
    placeholders: int = 0  # output tokens scheduled whose value is not known yet (async)
    stale: int = 0  # in flight from before a preemption
    drop_stale: bool = False  # that output is thrown away (reset_running_requests)
    preemptions: int = 0
    junction: int = 0
    tables: list[list[int]] = field(default_factory=list)
    registered: list[int] = field(default_factory=list)  # full blocks dealt with, per group
    scheduled: float = math.nan
    finish: float = math.nan
    token_times: list[float] = field(default_factory=list)
    hit: int = 0


@dataclass
class Hit:
    """Cached blocks per group and their length in tokens."""

    tables: list[list[int]]
    tokens: int = 0
    junction: int = 0


class CacheManager:
    """Pool, groups and the rules between them."""

    def __init__(self, settings: Resolved) -> None:
        self.settings = settings
        profile, caching = settings.profile, settings.enable_prefix_caching
        self.pool = BlockPool(settings.num_gpu_blocks, profile.unhashed_to_front if caching else profile.caching_off_to_front)
        in_flight = settings.max_num_batched_tokens * (2 if settings.async_scheduling else 1)
        self.groups = build_groups(settings.groups, in_flight, settings.max_model_len)
        sizes = [g.block_size for g in self.groups]
        self.hash_block, self.scheduler_block = math.gcd(*sizes), math.lcm(*sizes)
        kinds: dict[tuple[int | None, int], list[FullGroup]] = {}
        for group in self.groups:
            kinds.setdefault(group.kind, []).append(group)
        self.kinds = sorted(kinds.values(), key=lambda kind: kind[0].window is not None)  # full attention first

    def no_hit(self) -> Hit:
        return Hit([[] for _ in self.groups])

    def find_hit(self, request: Request) -> Hit:
        """The longest prefix all groups have. The last token is always computed, so at most ``num_tokens - 1``.

        Every kind shortens a common limit until one pass changes nothing. A full kind is searched once: a shorter limit
        only cuts its run. ``junction``: the longest prefix any kind had, if that is more than the hit.
        """
        hit = self.no_hit()
        limit, best = request.num_tokens - 1, 0
        full_length: dict[int, int] = {}
        while True:
            current = limit
            for k, kind in enumerate(self.kinds):
                if k in full_length:
                    current = min(current, full_length[k])
                    continue
                members = [g.index for g in kind]
                found = kind[0].find(request.keys, self.hash_block, current, members, self.pool, self.scheduler_block)
                current = found.tokens
                for g, table in found.tables.items():
                    hit.tables[g] = table
                if kind[0].window is None:
                    full_length[k] = current
                best = max(best, current)
            unchanged = current >= limit
            limit = current
            if unchanged or (len(self.kinds) == 2 and self.kinds[0][0].window is None):
                break
        hit.tokens = limit
        for group in self.groups:
            if group.window is None:
                del hit.tables[group.index][ceil_div(limit, group.block_size) :]
        if len(self.groups) > 1 and best > limit:
            hit.junction = best
        return hit

    def demand(self, request: Request, hit: Hit, num_tokens: int, *, gate: bool = False) -> int:
        """Blocks that leave the free queue if the request gets room for ``num_tokens``: popped ones and idle hits."""
        computed, total = request.computed + hit.tokens, 0
        for group in self.groups:
            need = ceil_div(num_tokens, group.block_size)
            if gate:
                need = group.gate_cap(need)
            held, found = len(request.tables[group.index]), hit.tables[group.index]
            skipped = group.skipped_blocks(computed)
            total += max(need - max(skipped, held + len(found)), 0)
            total += sum(b != NULL and self.pool.ref[b] == 0 for b in found[max(skipped - held, 0) :])
        return total

    def allocate(self, request: Request, new: int, hit: Hit, *, whole_prompt: bool, reserve: int) -> bool:
        """Room for ``new`` tokens behind the hit (KVCacheManager.allocate_slots). False if the pool has none.

        Args:
            whole_prompt: first test whether all tokens known now would fit (scheduler_reserve_full_isl).
            reserve: blocks that must stay free (watermark).
        """
        longest = self.settings.max_model_len
        if whole_prompt and self.demand(request, hit, min(request.num_tokens, longest), gate=True) + reserve > len(self.pool.free):
            return False
        computed = request.computed + hit.tokens
        self._trim(request, max(0, computed - request.in_flight))  # stays done even if the next test fails
        total = min(computed + new, longest)
        if self.demand(request, hit, total) + reserve > len(self.pool.free):
            return False
        if hit.tokens:
            self._take_hit(request, hit)
        for group in self.groups:
            table = request.tables[group.index]
            table += self.pool.allocate(max(ceil_div(total, group.block_size) - len(table), 0))
        self.register(request, min(computed + new, request.num_tokens))
        return True

    def _trim(self, request: Request, settled: int) -> None:
        """Release what lies left of the window of the ``settled`` tokens; the table keeps null blocks there."""
        for group in self.groups:
            table = request.tables[group.index]
            first = stop = min(group.skipped_blocks(settled), len(table))
            while first > 0 and table[first - 1] != NULL:
                first -= 1
            self.pool.release(table[first:stop])
            table[first:stop] = [NULL] * (stop - first)

    def _take_hit(self, request: Request, hit: Hit) -> None:
        for group in self.groups:
            skipped = group.skipped_blocks(hit.tokens)
            used = hit.tables[group.index][skipped:]
            self.pool.touch(used)
            request.tables[group.index] = [NULL] * skipped + used
            request.registered[group.index] = skipped + len(used)

    def register(self, request: Request, num_tokens: int) -> None:
        """Give keys to the request's full blocks up to ``num_tokens`` (coordinator.cache_blocks)."""
        if not self.settings.enable_prefix_caching:
            return
        if len(self.groups) > 1:
            num_tokens = num_tokens // self.scheduler_block * self.scheduler_block
        boundaries = [request.num_prompt - 1] + ([request.junction] if request.junction else [])
        for group in self.groups:
            g, table = group.index, request.tables[group.index]
            full = num_tokens // group.block_size
            for i in range(request.registered[g], full):
                if table[i] != NULL and group.keeps(i, self.scheduler_block, self.settings.retention_interval, boundaries):
                    self.pool.register(table[i], (request.keys[(i + 1) * group.block_size // self.hash_block - 1], g))
            request.registered[g] = max(request.registered[g], full)
            if group.window is None and group.block_size > self.hash_block:
                self._register_end_of_prompt(request, group, num_tokens)

    def _register_end_of_prompt(self, request: Request, group: FullGroup, num_tokens: int) -> None:
        """A second key where the prompt's last hash boundary lies inside a bigger block."""
        end = (request.num_prompt - 1) // self.hash_block * self.hash_block
        if not 0 < end <= num_tokens or end % group.block_size == 0:
            return
        block, key = request.tables[group.index][end // group.block_size], (request.keys[end // self.hash_block - 1], group.index)
        if key not in self.pool.keys[block]:
            self.pool.register(block, key)

    def release(self, request: Request) -> None:
        """Give everything back: finish, preemption, abort. One release per group."""
        for table in request.tables:
            self.pool.release(table)
        self.clear(request)

    def clear(self, request: Request) -> None:
        request.tables = [[] for _ in self.groups]
        request.registered = [0] * len(self.groups)
