"""Small random lives of a router: prompts that share prefixes, and what happens to requests and workers, for property tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from simkv.fleet.routing.policy import METRICS, Candidates
from simkv.workload.workload import RUN, Workload, merge_runs, run_offsets

WORKERS = 4
WORDS = [97, 98, 353, 97, 98, 99, 100, 97, 98, 353, 97, 100, 113, 98, 97, 353]
"""Units written out. Some agree in all but their last hexadecimal digit, or in the last one only."""
Run = tuple[int, int, int]

written = st.tuples(st.integers(-9, -1), st.just(0), st.integers(1, 7))
content = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(1, 6))
prompts = st.lists(st.one_of(written, written, content), min_size=1, max_size=4)
written_prompts = st.lists(written, min_size=1, max_size=4)
events = st.tuples(st.sampled_from(["route"] * 6 + ["finish"] * 3 + ["tick", "leave", "join"]), st.integers(0, 1000))


@dataclass
class Life:
    """Prompts in order of routing, and events: ``route`` takes the next prompt."""

    prompts: list[list[Run]]
    events: list[tuple[str, int]]


def lives(prompt: st.SearchStrategy[list[Run]], most: int = 40) -> st.SearchStrategy[Life]:
    """A life of at most so many events; only a few different prompts, so that they come again."""

    def build(pool: list[list[Run]], what: list[tuple[str, int]]) -> Life:
        return Life([pool[number % len(pool)] for kind, number in what if kind == "route"], what)

    return st.builds(build, st.lists(prompt, min_size=1, max_size=8), st.lists(events, min_size=1, max_size=most))


def workload_of(prompts: list[list[Run]], words: list[int]) -> Workload:
    """One request a prompt, without answers."""
    n = len(prompts)
    runs = np.array([run for prompt in prompts for run in prompt], RUN)
    merged, of = merge_runs(runs, np.repeat(np.arange(n), [len(p) for p in prompts]))
    lengths = np.array([sum(r[2] for r in p) for p in prompts], np.int32)
    return Workload("made", "made", np.zeros(n), lengths, np.zeros(n, np.int32), run_offsets(of, n), merged, np.array(words, np.int32))


def spelled(prompt: list[Run], words: list[int] = WORDS) -> list[int]:
    """A prompt unit by unit, as numbers that are equal where units are: words as they are, content above."""
    out: list[int] = []
    for seed, start, n in prompt:
        out += [1000 + 100 * seed + k if seed >= 0 else words[-1 - seed + k] for k in range(start, start + n)]
    return out


class Fleet:
    """Which workers live and what they hold, without any rule."""

    def __init__(self) -> None:
        self.candidates = Candidates(list(range(WORKERS)), np.zeros(WORKERS, np.int64), np.zeros(WORKERS, METRICS))
        self.held: list[int] = []

    @property
    def order(self) -> list[int]:
        return self.candidates.order

    @property
    def load(self) -> dict[int, int]:
        return {w: int(self.candidates.inflight[w]) for w in self.order}

    def start(self, worker: int) -> None:
        self.candidates.inflight[worker] += 1
        self.held.append(worker)

    def finish(self, number: int) -> None:
        if self.held:
            self.candidates.inflight[self.held.pop(number % len(self.held))] -= 1

    def leave(self, number: int) -> int | None:
        """A worker leaves with all its requests; returns it. The last one stays."""
        if len(self.order) == 1:
            return None
        worker = self.order.pop(number % len(self.order))
        self.held = [w for w in self.held if w != worker]
        self.candidates.inflight[worker] = 0
        return worker

    def join(self, number: int) -> int | None:
        """A worker that left comes back, anywhere in the order; returns it."""
        away = [w for w in range(WORKERS) if w not in self.order]
        if not away:
            return None
        self.order.insert(number % (len(self.order) + 1), away[number % len(away)])
        return away[number % len(away)]
