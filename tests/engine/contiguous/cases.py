"""Small random workloads and settings for the contiguous baselines: tight memory, chained requests, aborts, swapping."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from simkv.engine.contiguous.resolve import Resolved, resolve
from simkv.engine.step_time import StepTime, linear, step_index
from simkv.settings import ContiguousSettings
from simkv.workload.assemble import chunk_runs
from simkv.workload.workload import ABORT, ACTION, Workload


@dataclass(frozen=True)
class Case:
    """One input of the engine and of the reference."""

    workload: Workload
    settings: Resolved
    step_time: StepTime


def requests(prompts: list[int], outputs: list[int], arrive: list[float] | None = None, **more: object) -> Workload:
    """A workload from lengths; all at time 0 if no times are given."""
    n = len(prompts)
    p, o, none = np.array(prompts, np.int64), np.array(outputs, np.int64), np.zeros(0, np.int64)
    runs, first = chunk_runs(none, none, np.zeros(n, np.int64), p, o, 0)
    times = np.zeros(n) if arrive is None else np.array(arrive, np.float64)
    return Workload("lengths", "test", times, p.astype(np.int32), o.astype(np.int32), first, runs, **more)  # type: ignore[arg-type]


def draw_case(r: Random, most_requests: int = 14) -> Case:
    """A case; the same for the same state of ``r``."""
    timed = r.random() < 0.6
    n, longest = r.randint(1, most_requests), r.choice([16, 40, 64])
    prompts = [r.randint(1, max(1, longest - 2)) for _ in range(n)]
    outputs = [r.randint(1, max(1, longest - p)) for p in prompts]
    if r.random() < 0.2:
        prompts[r.randrange(n)] = longest + r.randint(0, 3)
    arrive = np.cumsum([r.choice([0, 0, 0.02, 0.3] if timed else [0, 0, 1, 7]) for _ in range(n)]).tolist()
    after = None
    if r.random() < 0.4:
        after = np.array([r.randrange(i) if i and r.random() < 0.4 else -1 for i in range(n)], np.int32)
        arrive = [r.choice([0.0, 0.1]) if k >= 0 else t for t, k in zip(arrive, after.tolist(), strict=True)]
    actions = sorted(
        (r.choice([0.05, 0.3, 1.0]) if timed else float(r.randint(0, 30)), r.randrange(n), ABORT) for _ in range(r.choice([0, 0, 2, 4]))
    )
    workload = requests(prompts, outputs, arrive, after=after, actions=np.array(actions, ACTION))
    step_time = linear(0.01, r.choice([0.0, 1e-4]), r.choice([0.0, 2e-4])) if timed else step_index()
    return Case(workload, resolve(_settings(r, longest), workload), step_time)


def _settings(r: Random, longest: int) -> ContiguousSettings:
    cell = r.choice([1, 2, 4, 16])
    most = -(-longest // cell)
    most = 1 << (most - 1).bit_length()
    static = r.random() < 0.25
    return ContiguousSettings(
        reservation=r.choice(["max", "pow2", "oracle"]),
        allocator=r.choice(["buddy", "first_fit"]),
        batching="static" if static else "continuous",
        preemption_mode="none" if static or r.random() < 0.4 else "swap",
        swap_patience_s=r.choice([0.0, 0.05, 1.0]),
        swap_space_gib=r.choice([0.0, 0.002, 0.01, 1.0]),
        swap_gb_s=r.choice([0.05, 1.0, 20.0]),
        block_size=cell,
        num_gpu_blocks=1 + most + r.choice([0, 1, most // 2, most, 3 * most + 1]),
        max_num_seqs=r.choice([1, 2, 4, 8]),
        max_model_len=longest,
    )
