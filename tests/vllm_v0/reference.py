"""V0 in plain Python: lists, dicts and one object a sequence; slow and easy to read. Rules: vLLM 0.2.7, from its public source.

Beams are treated as V0 does, fork by fork and free by free, without lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.vllm_v0.cases import Case

Event = tuple[str, str, int]
"""(kind, request, argument) as in the event log, less the rows that only say who shares what."""


@dataclass(eq=False)
class Sequence:
    """One continuation of a prompt: its block table."""

    table: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """A request and its sequences, all equally long."""

    id: str
    arrive: int
    prompt: int
    output: int
    parents: list[list[int]]
    generated: int = 0
    sequences: list[Sequence] = field(default_factory=list)
    preempted: int = 0
    status: str = "not arrived"

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated


class Pool:
    """Blocks of one memory: a stack of free ones and reference counts."""

    def __init__(self, numbers: list[int]) -> None:
        self.free = numbers
        self.ref: dict[int, int] = {}

    def take(self) -> int:
        block = self.free.pop()
        self.ref[block] = 1
        return block

    def drop(self, block: int) -> bool:
        """True if that was the last reference."""
        self.ref[block] -= 1
        if self.ref[block] == 0:
            del self.ref[block]
            self.free.append(block)
            return True
        return False


class NoSwapSpace(Exception):
    """V0 raises RuntimeError here."""


class Reference:
    """Half turns over a case timed in steps; ``events`` grows."""

    def __init__(self, case: Case) -> None:
        c = case["config"]
        self.size, self.width, self.beam = c["block_size"], c.get("best_of", c.get("n", 1)), c.get("use_beam_search", False)
        self.longest, self.seqs = c["max_model_len"], c.get("max_num_seqs", 256)
        self.budget, self.paddings = c.get("max_num_batched_tokens", max(2048, self.longest)), c.get("max_paddings", 256)
        self.blocks = c["num_gpu_blocks"]
        self.swap = self.width > 1 or c.get("preemption_mode") == "swap"
        self.watermark = int(0.01 * self.blocks)
        self.gpu, self.cpu = Pool(list(range(self.blocks, 0, -1))), Pool(list(range(c["num_cpu_blocks"])))
        self.groups = [Group(r["id"], r["arrive"], r["prompt"], r["output"], r.get("parents", [])) for r in case["requests"]]
        self.to_come = list(self.groups)
        self.aborts = list(case.get("aborts", []))
        self.waiting: list[Group] = []
        self.running: list[Group] = []
        self.swapped: list[Group] = []
        self.batch: list[Group] = []
        self.events: list[Event] = []
        self.step = 0
        self.prompts = False

    def log(self, kind: str, group: Group, argument: int = 0) -> None:
        self.events.append((kind, group.id, argument))

    def need(self, tokens: int) -> int:
        return -(-tokens // self.size)

    # -- one turn

    def schedule(self) -> bool:
        """Arrivals, aborts, schedule(). False when there is nothing left to do."""
        if not (self.waiting or self.running or self.swapped):
            times = [g.arrive for g in self.to_come[:1]] + [a["at"] for a in self.aborts[:1]]
            if not times:
                return False
            self.step = max(self.step, min(times))
        while self.to_come and self.to_come[0].arrive <= self.step:
            group = self.to_come.pop(0)
            group.status = "waiting"
            self.waiting.append(group)
            self.log("arrived", group)
        while self.aborts and self.aborts[0]["at"] <= self.step:
            self.abort(self.aborts.pop(0)["id"])
        self.batch = []
        if not (self.waiting or self.running or self.swapped):
            return True
        refused = 0
        self.prompts = True
        if not self.swapped:
            refused = self.admit()
        if not self.batch and not refused:
            self.prompts = False
            self.decode()
        for group in self.batch:
            self.log("scheduled", group, group.tokens if self.prompts else len(group.sequences))
        self.step += 1
        return True

    def admit(self) -> int:
        refused, lengths = 0, list[int]()
        while self.waiting:
            group = self.waiting[0]
            blocks = self.need(group.tokens)
            if group.tokens > min(self.longest, self.budget) or self.blocks - blocks < self.watermark:
                self.waiting.pop(0).status = "rejected"
                self.log("aborted", group)
                refused += 1
                continue
            padded = (len(lengths) + 1) * max([*lengths, group.tokens])
            if (
                len(self.gpu.free) - blocks < self.watermark
                or padded > self.budget
                or (len(self.running) + 1) * self.width > self.seqs
                or padded - sum(lengths) - group.tokens > self.paddings
            ):
                break
            lengths.append(group.tokens)
            self.waiting.pop(0)
            group.sequences = [Sequence([self.gpu.take() for _ in range(blocks)])]
            for block in group.sequences[0].table:
                self.log("allocated", group, block)
            self.log("resumed" if group.preempted else "admitted", group)
            group.status = "running"
            self.running.append(group)
            self.batch.append(group)
        return refused

    def decode(self) -> None:
        queue = sorted(self.running, key=lambda g: g.arrive)
        self.running, anyone = [], False
        while queue:
            group = queue.pop(0)
            while len(group.sequences) > len(self.gpu.free):
                victim = queue.pop() if queue else group
                self.preempt(victim)
                anyone = True
                if victim is group:
                    break
            else:
                self.append(group)
                self.running.append(group)
        self.swapped.sort(key=lambda g: g.arrive)
        while self.swapped and not anyone:
            group = self.swapped[0]
            blocks = {b for s in group.sequences for b in s.table}
            if len(self.gpu.free) - len(blocks) - len(group.sequences) < self.watermark:
                break
            if (len(self.running) + 1) * self.width > self.seqs:
                break
            self.swapped.pop(0)
            self.move(group, self.cpu, self.gpu)
            self.log("resumed", group, group.tokens - 1)
            self.append(group)
            self.running.append(group)
        self.batch = list(self.running)

    def append(self, group: Group) -> None:
        for sequence in group.sequences:
            if len(sequence.table) < self.need(group.tokens):
                sequence.table.append(self.gpu.take())
                self.log("allocated", group, sequence.table[-1])
            elif self.gpu.ref[sequence.table[-1]] > 1:
                self.gpu.drop(sequence.table[-1])
                sequence.table[-1] = self.gpu.take()
                self.log("allocated", group, sequence.table[-1])
                self.log("copied", group, sequence.table[-1])

    def preempt(self, group: Group) -> None:
        if self.swap:
            if len({b for s in group.sequences for b in s.table}) > len(self.cpu.free):
                raise NoSwapSpace(group.id)
            self.move(group, self.gpu, self.cpu)
            self.swapped.append(group)
        else:
            self.free(group, group.sequences)
            group.sequences = []
            group.status = "waiting"
            self.waiting.insert(0, group)
        group.preempted += 1
        self.log("preempted", group)

    def move(self, group: Group, source: Pool, target: Pool) -> None:
        """Swap a group from one memory to the other; blocks shared there are shared here."""
        place: dict[int, int] = {}
        for sequence in group.sequences:
            table, gone = list[int](), list[int]()
            for block in sequence.table:
                if block in place:
                    target.ref[place[block]] += 1
                else:
                    place[block] = target.take()
                    if target is self.gpu:
                        self.log("allocated", group, place[block])
                table.append(place[block])
                if source.drop(block):
                    gone.append(block)
            if source is self.gpu:
                for block in reversed(gone):
                    self.log("freed_front", group, block)
            sequence.table = table

    def free(self, group: Group, sequences: list[Sequence]) -> None:
        pool = self.cpu if group in self.swapped else self.gpu
        for sequence in sequences:
            gone = [block for block in sequence.table if pool.drop(block)]
            if pool is self.gpu:
                for block in reversed(gone):
                    self.log("freed_front", group, block)

    # -- the other half

    def process(self) -> None:
        for group in self.batch:
            if group.generated == 0:
                self.log("first_token", group)
            group.generated += 1
            ended = group.generated == group.output or group.tokens > self.longest
            if self.beam:
                self.select(group, ended)
            elif ended:
                self.free(group, group.sequences)
            elif self.prompts:
                group.sequences += [self.fork(group.sequences[0]) for _ in range(self.width - 1)]
            if ended:
                group.status = "finished"
                group.sequences = []
                self.running.remove(group)
                self.log("finished", group)
        self.batch = []

    def fork(self, sequence: Sequence) -> Sequence:
        for block in sequence.table:
            self.gpu.ref[block] += 1
        return Sequence(list(sequence.table))

    def select(self, group: Group, ended: bool) -> None:
        """Twice as many candidates as beams, best first; the last candidate of a beam is the beam itself, the others forks."""
        beams = group.sequences
        ranks = [0] * (2 * self.width) if len(beams) == 1 else group.parents[group.generated - 2]
        last = {parent: rank for rank, parent in enumerate(ranks)}
        for place, beam in enumerate(beams):
            if place not in last:
                self.free(group, [beam])
        own = {rank: beams[place] for place, rank in last.items()}
        if ended:
            self.free(group, [own[rank] for rank in sorted(own)])
            return
        kept = [beams[place] for place in sorted(last) if last[place] < self.width]
        forks = [self.fork(beams[ranks[rank]]) for rank in range(self.width) if rank not in own]
        self.free(group, [own[rank] for rank in sorted(own) if rank >= self.width])
        group.sequences = kept + forks

    def abort(self, name: str) -> None:
        group = next(g for g in self.groups if g.id == name)
        if group.status not in ("waiting", "running"):
            return
        self.free(group, group.sequences)
        for queue in (self.waiting, self.running, self.swapped):
            if group in queue:
                queue.remove(group)
        group.status = "aborted"
        group.sequences = []
        self.log("aborted", group)
