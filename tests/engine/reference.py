"""vLLM's scheduler and engine loop in plain Python: the rules a person reads, and what the compiled engine is held against.

Rules of vllm/v1/core/sched/scheduler.py, async_scheduler.py, request_queue.py and vllm/v1/engine/core.py, 0.32.0, plus
the flags of simkv/engine/profiles.py. Slow and simple on purpose: lists, dictionaries, one function per rule.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass, field

from simkv.engine.resolve import Resolved
from simkv.engine.step_time import StepTime
from simkv.engine.step_time_layout import STEP_INDEX
from simkv.workload.workload import ABORT, RESET_RUNNING, Workload
from tests.engine.reference_cache import CacheManager, Request
from tests.engine.reference_keys import ChainKeys, arrival_tie, priority_of

MOST_EMPTY_SCHEDULES = 50
"""The engine itself would wait for ever; a simulator gives up after so many schedule() calls in a row without work."""


@dataclass
class Row:
    """What one request computes in one step. ``kind``: new, resumed or continued; ``computed``: before the step."""

    request: Request
    kind: str
    computed: int
    n: int
    sampled: bool = False


@dataclass
class Batch:
    """The outcome of one schedule() call. ``end``: when the device is done with it."""

    rows: list[Row] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    end: float = 0.0


@dataclass
class Statistics:
    """Counters under the engine's names (simkv/engine/vllm/layout.py, COUNTERS)."""

    steps: int = 0
    turns: int = 0
    tokens: int = 0
    finished: int = 0
    aborted: int = 0
    rejected: int = 0
    preemptions: int = 0
    requests: int = 0
    queries: int = 0
    hits: int = 0
    recompute_requests: int = 0
    recompute_queries: int = 0
    recompute_hits: int = 0


class Reference:
    """One replica over a whole workload. ``half_turn`` goes on by half a turn of the engine's loop."""

    def __init__(self, workload: Workload, settings: Resolved, step_time: StepTime) -> None:
        self.workload, self.settings, self.step_time = workload, settings, step_time
        self.cache = CacheManager(settings)
        self.statistics = Statistics()
        self._keys = ChainKeys(workload, self.cache.hash_block, lora_path=settings.profile.lora_path_in_key)
        self.requests = [self._request(i) for i in range(len(workload))]
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.in_flight: deque[Batch] = deque()
        self.batch: Batch | None = None
        self.now = self.device_free = 0.0
        after = workload.after if workload.after is not None else [-1] * len(workload)
        self.successors: dict[int, list[int]] = {}
        for i, predecessor in enumerate(after):
            if predecessor >= 0:
                self.successors.setdefault(int(predecessor), []).append(i)
        self.arrivals = sorted((float(workload.arrive[i]), i) for i in range(len(workload)) if after[i] < 0)
        self.arrive = [float(t) for t in workload.arrive]
        self.actions = deque(workload.actions.tolist())
        self._half, self._empty = 0, 0

    def _request(self, i: int) -> Request:
        w = self.workload
        request = Request(
            index=i,
            name=w.id(i),
            keys=self._keys.of(i),
            num_prompt=int(w.num_prompt[i]),
            num_output=int(w.num_output[i]),
            priority=priority_of(w, i),
            arrival=arrival_tie(w, i),
            lora=w.loras[w.lora[i]].id if w.lora is not None and w.lora[i] >= 0 else None,
            skip_cache=bool(w.skip_cache[i]) if w.skip_cache is not None else False,
        )
        request.num_tokens = request.num_prompt
        self.cache.clear(request)
        return request

    # The loop (EngineCore.step; with async scheduling step_with_batch_queue, two batches deep)

    def half_turn(self) -> str:
        """``scheduled`` or ``processed``; ``done`` if nothing is left, ``stalled`` if nothing can go on."""
        if self._half == 1:
            self._half = 0
            self._process_due()
            return "processed"
        if not self.in_flight and not self._unfinished():
            following = self._next_event()
            if following is None:
                return "done"
            if self._virtual:
                self.now = max(self.now, following)
            else:
                self.statistics.steps = max(self.statistics.steps, math.ceil(following))
        self._take_arrivals()
        self._take_actions()
        self.batch = None
        if self._unfinished():
            self.batch = self._schedule()
            self.device_free = max(self.device_free, self.now) + self._duration(self.batch)
            self.batch.end = self.device_free
            self.in_flight.append(self.batch)
            self.statistics.steps += 1
            self.statistics.turns += 1
            self._empty = 0 if self.batch.rows else self._empty + 1
        if self._empty > MOST_EMPTY_SCHEDULES:
            return "stalled"
        self._half = 1
        return "scheduled"

    @property
    def _virtual(self) -> bool:
        return self.step_time.kind != STEP_INDEX

    def clock(self) -> float:
        """Seconds, or the number of the step in step mode."""
        return self.now if self._virtual else float(self.statistics.steps)

    def _unfinished(self) -> bool:
        return bool(self.running or self.waiting)

    def _next_event(self) -> float | None:
        times = [self.arrivals[0][0]] if self.arrivals else []
        times += [self.actions[0][0]] if self.actions else []
        return min(times, default=None)

    def _take_arrivals(self) -> None:
        while self.arrivals and self.arrivals[0][0] <= self.clock():
            _, i = self.arrivals.pop(0)
            request = self.requests[i]
            if not (0 < request.num_prompt < self.settings.max_model_len and request.num_output > 0):  # the server answers with an error
                request.status = "rejected"
                self.statistics.rejected += 1
                self._start_successors(request)
                continue
            request.status = "waiting"
            self._enqueue(request)

    def _start_successors(self, request: Request) -> None:
        """Chained requests arrive their own delay after their predecessor's end."""
        for i in self.successors.get(request.index, []):
            self.arrive[i] += self.clock()
            self.requests[i].arrival += self.clock()
            bisect.insort(self.arrivals, (self.arrive[i], i))

    def _take_actions(self) -> None:
        while self.actions and self.actions[0][0] <= self.clock():
            _, i, op = self.actions.popleft()
            if op == ABORT:
                if i >= 0 and self.requests[i].status in ("waiting", "running"):
                    self._end(self.requests[i], "aborted")
                    self.statistics.aborted += 1
                continue
            if op == RESET_RUNNING:
                while self.running:
                    self._preempt(self.running.pop(), drop_output=True)
            self.cache.pool.reset()

    def _end(self, request: Request, status: str) -> None:
        (self.running if request.status == "running" else self.waiting).remove(request)
        self.cache.release(request)
        request.status = status
        request.finish = self.clock()
        self._start_successors(request)

    # The waiting queue (fcfs: in order of arrival, preempted ones in front; priority: sorted)

    def _order(self, request: Request) -> tuple[int, float, str]:
        return request.priority, request.arrival, request.name

    def _enqueue(self, request: Request, *, in_front: bool = False) -> None:
        if self.settings.policy == "priority":
            self.waiting = deque(sorted([*self.waiting, request], key=self._order))
        elif in_front:
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)

    # schedule()

    def _schedule(self) -> Batch:
        """Running requests first; waiting ones only if nothing was preempted."""
        batch = Batch()
        several = len(self.running) + len(self.waiting) > 1
        threshold = self.settings.long_prefill_token_threshold if several else 0
        budget = self._schedule_running(batch, self.settings.max_num_batched_tokens, threshold)
        if not batch.preempted:
            self._schedule_waiting(batch, budget, threshold)
        for row in batch.rows:
            request = row.request
            request.computed += row.n
            request.in_flight += row.n
            row.sampled = request.computed >= request.num_tokens + request.placeholders
            if row.sampled and self.settings.async_scheduling:
                request.placeholders += 1
        self.statistics.tokens += sum(row.n for row in batch.rows)
        self.statistics.preemptions += len(batch.preempted)
        return batch

    def _schedule_running(self, batch: Batch, budget: int, threshold: int) -> int:
        """In list order. Who finds no room preempts, the last (fcfs) or least important (priority), until it does or is gone itself."""
        i = 0
        while i < len(self.running) and budget > 0:
            request = self.running[i]
            n = self._tokens_to_compute(request, budget, threshold)
            if n == 0:
                i += 1
                continue
            while not (fits := self.cache.allocate(request, n, self.cache.no_hit(), whole_prompt=False, reserve=0)):
                victim = self._victim()
                at = self.running.index(victim)
                del self.running[at]
                if at < i:
                    i -= 1
                budget += sum(row.n for row in batch.rows if row.request is victim)
                batch.rows = [row for row in batch.rows if row.request is not victim]
                self._preempt(victim)
                batch.preempted.append(victim)
                if victim is request:
                    break
            if not fits:
                break
            batch.rows.append(Row(request, "continued", request.computed, n))
            budget -= n
            i += 1
        return budget

    def _tokens_to_compute(self, request: Request, budget: int, threshold: int) -> int:
        if request.placeholders > 0 and request.computed + 2 - request.placeholders >= request.num_prompt + request.num_output:
            return 0  # the output in flight is known to be the last
        n = request.num_tokens + request.placeholders - request.computed
        if 0 < threshold < n:
            n = threshold
        return min(n, budget, self.settings.max_model_len - request.computed - 1)

    def _victim(self) -> Request:
        if self.settings.policy == "priority":
            return max(self.running, key=lambda r: (r.priority, r.arrival))
        return self.running[-1]

    def _preempt(self, request: Request, *, drop_output: bool = False) -> None:
        """Blocks are freed (and stay cached), everything is computed again. Output under way is taken in later or dropped."""
        self.cache.release(request)
        request.status = "waiting"
        request.drop_stale = drop_output or (request.drop_stale and request.stale > 0)
        request.stale = request.in_flight
        request.computed = request.placeholders = 0
        request.preemptions += 1
        self._enqueue(request, in_front=True)

    def _schedule_waiting(self, batch: Batch, budget: int, threshold: int) -> None:
        """From the head; the first that does not fit stops all behind it, one that must wait is passed over."""
        adapters = {row.request.lora for row in batch.rows if row.request.lora is not None}
        passed_over: list[Request] = []
        while budget > 0 and self.waiting and len(self.running) < self.settings.max_running:
            request = self.waiting[0]
            if self._must_wait(request, adapters):
                passed_over.append(self.waiting.popleft())
                continue
            n = self._admit(request, budget, threshold, batch)
            if n == 0:
                break
            budget -= n
            if request.lora is not None:
                adapters.add(request.lora)
        for request in reversed(passed_over):
            self._enqueue(request, in_front=True)

    def _must_wait(self, request: Request, adapters: set[int]) -> bool:
        """Output of before its preemption is still to come, or it needs one adapter more than max_loras."""
        if request.stale > 0 and not request.drop_stale:
            return True
        limit = self.settings.max_loras
        return bool(limit) and request.lora is not None and len(adapters) == limit and request.lora not in adapters

    def _admit(self, request: Request, budget: int, threshold: int, batch: Batch) -> int:
        """Tokens scheduled, 0 if the request cannot be admitted now."""
        s, reads = self.settings, self.settings.enable_prefix_caching and not request.skip_cache
        hit = self.cache.find_hit(request) if reads else self.cache.no_hit()
        request.junction = hit.junction
        if reads and s.profile.stats_at_lookup:
            self._count_lookup(request, hit.tokens)
        n = request.num_tokens - hit.tokens
        if 0 < threshold < n:
            n = threshold
        if n > budget and not s.enable_chunked_prefill:
            return 0
        n = min(n, budget)
        reserve = s.watermark_blocks if self.running else 0
        if not self.cache.allocate(request, n, hit, whole_prompt=s.scheduler_reserve_full_isl, reserve=reserve):
            return 0
        if reads and not s.profile.stats_at_lookup:
            self._count_lookup(request, hit.tokens)
        self.waiting.popleft()
        self.running.append(request)
        request.status = "running"
        request.computed = hit.tokens
        if request.preemptions == 0:
            request.scheduled, request.hit = self.clock(), hit.tokens
        batch.rows.append(Row(request, "new" if request.preemptions == 0 else "resumed", hit.tokens, n))
        return n

    def _count_lookup(self, request: Request, hits: int) -> None:
        """PrefixCacheStats, in tokens. Preempted requests are counted apart since 0.13."""
        apart = "recompute_" if request.preemptions and self.settings.profile.split_preempted else ""
        for name, amount in (("requests", 1), ("queries", request.num_tokens), ("hits", hits)):
            setattr(self.statistics, apart + name, getattr(self.statistics, apart + name) + amount)

    def _duration(self, batch: Batch) -> float:
        rows = batch.rows
        decoding = sum(row.kind == "continued" and row.n == 1 and row.computed >= row.request.num_prompt for row in rows)
        return self.step_time.seconds([(row.computed, row.n) for row in rows], decoding)

    # update_from_output()

    def _process_due(self) -> None:
        """The oldest batch, once as many are in flight as the engine keeps, or when nothing new was scheduled."""
        depth = 2 if self.settings.async_scheduling else 1
        if self.in_flight and (self.batch is None or len(self.in_flight) >= depth):
            batch = self.in_flight.popleft()
            self.now = max(self.now, batch.end)
            for row in batch.rows:
                self._process(row)

    def _process(self, row: Row) -> None:
        request = row.request
        if request.status not in ("waiting", "running"):
            return
        request.in_flight -= row.n
        stale = request.stale > 0
        if stale:
            request.stale -= row.n
            if request.drop_stale:
                return
        if not row.sampled:
            return
        request.num_tokens += 1
        request.token_times.append(self.clock())
        if self.settings.async_scheduling:
            if not stale:
                request.placeholders -= 1
            if request.status == "running":
                self.cache.register(request, request.computed - request.placeholders)
        longest = min(request.num_prompt + request.num_output, self.settings.max_model_len)
        if request.num_tokens >= longest:
            self._end(request, "finished")
            self.statistics.finished += 1

    @property
    def usage(self) -> float:
        """vllm:kv_cache_usage_perc."""
        return 1.0 - len(self.cache.pool.free) / (self.settings.num_gpu_blocks - 1)

    def first_token(self, request: Request) -> float:
        """When it came, NaN if it did not."""
        return request.token_times[0] if request.token_times else math.nan
