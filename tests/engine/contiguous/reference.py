"""The contiguous baselines once more: slow, plain objects, written from the rules and not from the compiled code."""

from __future__ import annotations

from dataclasses import dataclass, field

from simkv.engine.contiguous.resolve import Resolved
from simkv.engine.step_time import StepTime
from simkv.workload.workload import ABORT, Workload


class Memory:
    """A pool as a string of owners, one per cell; -1 is free."""

    def __init__(self, cells: int, buddy: bool) -> None:
        self.owner = [-1] * cells
        self.buddy = buddy

    def take(self, size: int, owner: int) -> tuple[int, int] | None:
        """First cell and size of the piece, or None."""
        if self.buddy:
            size = 1 << (size - 1).bit_length()
            starts = self._buddy_starts(size)
        else:
            starts = [a for a in range(len(self.owner) - size + 1) if self._free(a, size)]
        if not starts:
            return None
        at = starts[0]
        self.owner[at : at + size] = [owner] * size
        return at, size

    def give(self, at: int, size: int) -> None:
        """Free a piece."""
        self.owner[at : at + size] = [-1] * size

    def _free(self, at: int, size: int) -> bool:
        return all(o == -1 for o in self.owner[at : at + size])

    def _buddy_starts(self, size: int) -> list[int]:
        """Aligned free places for ``size``, those in the smallest whole free block first, then by address.

        An aligned block is whole if it is free and the aligned block twice its size around it is not.
        """
        whole = []
        block = 1
        while block <= len(self.owner):
            for a in range(0, len(self.owner) - block + 1, block):
                around = a // (2 * block) * 2 * block
                if self._free(a, block) and not (around + 2 * block <= len(self.owner) and self._free(around, 2 * block)):
                    whole.append((block, a))
            block *= 2
        return [a for block, a in sorted(whole) if block >= size]


@dataclass(eq=False)
class Request:
    """One request and where it is."""

    index: int
    prompt: int
    output: int
    arrive: float
    state: str = "not arrived"
    generated: int = 0
    computed: int = 0
    piece: tuple[int, int] | None = None
    waiting_since: float = 0.0
    since: float = 0.0
    ended: str = ""
    scheduled: float | None = None
    first_token: float | None = None
    finish: float | None = None
    preempted: int = 0
    after: int = -1
    times: list[float] = field(default_factory=list)


class Reference:
    """One replica; ``run`` goes to the end."""

    def __init__(self, workload: Workload, settings: Resolved, step_time: StepTime) -> None:
        self.s, self.time = settings, step_time
        self.memory = Memory(settings.num_gpu_blocks - 1, settings.allocator == "buddy")
        after = workload.after if workload.after is not None else [-1] * len(workload)
        columns = zip(workload.num_prompt.tolist(), workload.num_output.tolist(), workload.arrive.tolist(), strict=True)
        self.requests = [Request(i, p, o, a, after=int(k)) for i, ((p, o, a), k) in enumerate(zip(columns, after, strict=True))]
        self.due = sorted((r.arrive, r.index) for r in self.requests if r.after < 0)
        self.aborts = [(float(a["at"]), int(a["req"])) for a in workload.actions if a["op"] == ABORT]
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.leaving: list[tuple[float, Request]] = []
        self.returning: list[tuple[float, Request]] = []
        self.free_out = self.free_in = 0.0
        self.host = self.padding = self.tokens = 0
        self.now, self.steps = 0.0, 0
        self.timed = step_time.kind != 0
        self.places: list[tuple[int, int, int]] = []

    @property
    def clock(self) -> float:
        """Seconds, or the number of steps."""
        return self.now if self.timed else float(self.steps)

    def run(self) -> None:
        """To the end, or until nothing has been possible for long."""
        idle = 0
        while idle < 60:
            open_requests = [r for r in self.requests if r.state in ("waiting", "running")]
            if not open_requests:
                upcoming = [t for t, _ in (*self.due, *self.aborts)]
                if not upcoming:
                    return
                if self.timed:
                    self.now = max(self.now, min(upcoming))
                else:
                    self.steps = max(self.steps, -int(-min(upcoming) // 1))
            idle = 0 if self.turn() else idle + 1

    def turn(self) -> bool:
        """One turn of the loop; whether anything happened."""
        self._arrivals()
        self._aborts()
        if not any(r.state in ("waiting", "running") for r in self.requests):
            return True
        rows, duration = self._schedule()
        self.steps += 1
        if rows:
            self.now += duration
            self._output(rows)
        elif self.timed:
            ends = [t for t, _ in (*self.leaving[:1], *self.returning[:1])] + [t for t, _ in (*self.due, *self.aborts)]
            self.now = max([self.now, min(ends)]) if ends else self.now
        return bool(rows or self.leaving or self.returning)

    def _arrivals(self) -> None:
        while self.due and self.due[0][0] <= self.clock:
            r = self.requests[self.due.pop(0)[1]]
            if r.state != "not arrived":
                continue
            if not (0 < r.prompt < self.s.max_model_len and r.output > 0):
                r.state = "rejected"
                self._follow(r)
                continue
            r.state, r.waiting_since = "waiting", self.clock
            self.waiting.append(r)

    def _aborts(self) -> None:
        while self.aborts and self.aborts[0][0] <= self.clock:
            r = self.requests[self.aborts.pop(0)[1]]
            if r.state == "waiting":
                self.waiting.remove(r)
                self.host -= r.computed
                self._end(r, "aborted")
            elif r.state == "running" and not r.ended:
                if self.s.batching == "static":
                    r.ended = "aborted"
                    self._end_batch()
                elif r in self.running:
                    self.running.remove(r)
                    self._end(r, "aborted")
                else:
                    r.ended = "aborted"

    def _end(self, r: Request, how: str) -> None:
        if r.piece:
            self.memory.give(*r.piece)
            r.piece = None
        r.state, r.finish = how, self.clock
        self._follow(r)

    def _follow(self, r: Request) -> None:
        for x in self.requests:
            if x.after == r.index:
                x.arrive += self.clock
                self.due = sorted([*self.due, (x.arrive, x.index)])

    def _asked(self, r: Request) -> int:
        output = {"oracle": r.output, "pow2": 1 << (r.output - 1).bit_length()}.get(self.s.reservation)
        tokens = self.s.max_model_len if output is None else min(r.prompt + output, self.s.max_model_len)
        return -(-tokens // self.s.block_size)

    def _move_time(self, free: float, tokens: int) -> float:
        return max(self.now, free) + self.s.swap_job_s + tokens * self.s.swap_s_per_token if self.timed else self.now

    def _transfers(self) -> None:
        while self.leaving and self.leaving[0][0] <= self.now:
            r = self.leaving.pop(0)[1]
            if r.ended:
                self.host -= r.computed
                self._end(r, r.ended)
                continue
            assert r.piece
            self.memory.give(*r.piece)
            r.piece, r.state, r.waiting_since = None, "waiting", self.clock
            self.waiting.append(r)
        while self.returning and self.returning[0][0] <= self.now:
            r = self.returning.pop(0)[1]
            self.host -= r.computed
            if r.ended:
                self._end(r, r.ended)
            else:
                r.since = self.clock
                self.running.append(r)

    def _admit(self) -> None:
        holders = len(self.running) + len(self.leaving) + len(self.returning)
        while self.waiting and holders < self.s.max_running:
            r = self.waiting[0]
            r.piece = self.memory.take(self._asked(r), r.index)
            if r.piece is None:
                return
            self.places.append((r.index, *r.piece))
            self.waiting.pop(0)
            holders += 1
            r.state, r.since = "running", self.clock
            if r.computed:
                self.free_in = self._move_time(self.free_in, r.computed)
                self.returning.append((self.free_in, r))
            else:
                r.scheduled = self.clock
                self.running.append(r)

    def _swap(self, others: list[Request]) -> None:
        holders = len(self.running) + len(self.leaving) + len(self.returning)
        if self.s.preemption_mode != "swap" or self.leaving or not self.waiting or holders >= self.s.max_running:
            return
        head, patience = self.waiting[0], self.s.swap_patience_s
        if self.clock - head.waiting_since < patience:
            return
        size = self._asked(head)
        size = 1 << (size - 1).bit_length() if self.memory.buddy else size
        found = [
            r
            for r in others
            if self.clock > r.since
            and self.clock - r.since >= patience
            and r.piece is not None
            and r.piece[1] >= size
            and self.host + r.computed <= self.s.host_tokens
        ]
        if not found:
            return
        last = max(r.arrive for r in found)
        victim = [r for r in found if r.arrive == last][-1]
        self.running.remove(victim)
        victim.preempted += 1
        self.host += victim.computed
        self.free_out = self._move_time(self.free_out, victim.computed)
        self.leaving.append((self.free_out, victim))

    def _schedule(self) -> tuple[list[Request], float]:
        self._transfers()
        static, others = self.s.batching == "static", list(self.running)
        if not static or not others:
            self._admit()
            self._swap(others)
        longest = max((r.prompt for r in self.running), default=0) if static else 0
        rows, prefill, decode = [], 0, 0
        work: list[tuple[int, int]] = []
        for r in self.running:
            pad = longest - r.prompt if static else 0
            rows.append(r)
            if r.ended:
                decode += 1
                self.padding += 1
                work.append((r.computed + pad, 1))
            elif r.computed == 0:
                prefill += r.prompt + pad
                self.padding += pad
                self.tokens += r.prompt
                work.append((0, r.prompt + pad))
                r.computed = r.prompt
            else:
                decode += 1
                self.tokens += 1
                work.append((r.computed + pad, 1))
                r.computed += 1
        return rows, self.time.seconds(work, decode)

    def _output(self, rows: list[Request]) -> None:
        for r in rows:
            if r.ended:
                continue
            r.generated += 1
            r.times.append(self.clock)
            if r.generated == 1:
                r.first_token = self.clock
            if r.generated >= min(r.output, self.s.max_model_len - r.prompt):
                if self.s.batching == "static":
                    r.ended = "finished"
                else:
                    self.running.remove(r)
                    self._end(r, "finished")
        if self.s.batching == "static":
            self._end_batch()

    def _end_batch(self) -> None:
        if self.running and all(r.ended for r in self.running):
            for r in self.running:
                self._end(r, r.ended)
            self.running = []
