"""Small random workloads and settings that use every feature: pools so tight that blocks are evicted and requests preempted."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from random import Random

import numpy as np

from simkv.engine.profiles import profiles
from simkv.engine.resolve import Resolved, resolve
from simkv.engine.step_time import StepTime, linear, step_index
from simkv.replay import Run, replay
from simkv.settings import EngineSettings, KVGroup
from simkv.workload.workload import ABORT, ACTION, IMAGE, RESET, RESET_RUNNING, RUN, Lora, Workload, merge_runs, run_offsets

Runs = list[tuple[int, int, int]]
OWN_OUTPUT, SAME_OUTPUT = 1000, 900
SHARED = (1, 2, 3)


@dataclass(frozen=True)
class Case:
    """One input of the engine and of the reference."""

    workload: Workload
    settings: Resolved
    step_time: StepTime


def draw_case(r: Random, most_requests: int = 16) -> Case:
    """A case; the same for the same state of ``r``."""
    timed = r.random() < 0.5
    settings = _settings(r)
    workload = _workload(r, settings, timed, r.randint(1, most_requests))
    step_time = linear(r.choice([0.01, 0.006]), r.choice([0.0, 4e-5]), r.choice([0.0, 2e-4])) if timed else step_index()
    return Case(workload, resolve(settings, workload, check_pool=False), step_time)


def replayed(case: Case) -> Run:
    """The case as a replay. Its settings stand in the workload, as in a recording, so no start-up check applies."""
    s = case.settings
    engine = {
        "engine_version": s.profile.version,
        "scheduler_reserve_full_isl": s.scheduler_reserve_full_isl if s.profile.reserve_full_isl is not None else None,
        "watermark": s.watermark_blocks / s.num_gpu_blocks + 1e-12 if s.watermark_blocks else 0.0,
        "hybrid": s.groups,
        "max_num_active_seqs": s.max_running,
        "prefix_cache_retention_interval": s.retention_interval,
    }
    same = (
        "block_size num_gpu_blocks max_num_seqs max_num_batched_tokens max_model_len enable_prefix_caching enable_chunked_prefill"
        " async_scheduling long_prefill_token_threshold policy max_loras"
    )
    engine |= {name: getattr(s, name) for name in same.split()}
    run = replay(dataclasses.replace(case.workload, engine=engine), step_time=case.step_time)
    assert dataclasses.replace(run.resolved, notes=s.notes) == s
    return run


def _settings(r: Random) -> EngineSettings:
    version = r.choice(profiles()).version if r.random() < 0.3 else "0.32"
    since = tuple(map(int, version.split(".")))
    groups, block_size = _groups(r)
    longest = r.choice([32, 64, 64, 120])
    base = EngineSettings(block_size=block_size, hybrid=groups)
    budget = r.choice([4, 12, 16, 40, 64, 300])
    need = sum(_most_blocks(g, longest, budget) for g in base.groups)
    spare = r.choice([0, 0, 1, need // 3, need // 2, need, 2 * need])
    missing = r.choice([1, need // 2]) if r.random() < 0.07 else 0
    sliding = any(g.type == "sliding" for g in groups)
    return base.replace(
        engine_version=version,
        num_gpu_blocks=max(2, 1 + need + spare - missing),
        max_num_seqs=r.choice([1, 2, 4, 4, 6, 8]),
        max_num_active_seqs=r.choice([None, None, None, 3]),
        max_num_batched_tokens=budget,
        max_model_len=longest,
        enable_prefix_caching=r.random() < 0.88,
        enable_chunked_prefill=r.random() < 0.85,
        long_prefill_token_threshold=r.choice([0, 0, 0, 5, 9]),
        watermark=r.choice([0.0, 0.0, 0.1]) if since >= (0, 25) else 0.0,
        scheduler_reserve_full_isl=r.random() < 0.6 if since >= (0, 20) else None,
        async_scheduling=r.random() < 0.5,
        policy=r.choice(["fcfs", "fcfs", "priority"]),
        max_loras=r.choice([None, None, 1, 2]),
        prefix_cache_retention_interval=r.choice([0, None, base.scheduler_block_size * r.choice([1, 2])])
        if sliding
        else r.choice([0, None]),
    )


def _most_blocks(group: KVGroup, longest: int, budget: int) -> int:
    """Blocks one request can hold at once."""
    tokens = longest if group.type == "full" else min(longest, (group.window or 1) + min(budget, 16))
    return -(-tokens // (group.block_size or 1)) + (group.type != "full")


def _groups(r: Random) -> tuple[tuple[KVGroup, ...], int]:
    """``(groups, block_size)``; no groups means one full group."""
    if r.random() < 0.4:
        return (), r.choice([1, 3, 4, 8, 16])

    def window() -> int:
        return r.choice([1, 4, 5, 7, 9, 13, 22])

    kind = r.random()
    if kind < 0.3:
        return (KVGroup("sliding", window()),), r.choice([1, 4, 8])
    if kind < 0.6:
        pool = [KVGroup(), KVGroup("sliding", window()), KVGroup("sliding", window()), KVGroup("sliding", 9)]
        return tuple(r.choice(pool) for _ in range(r.randint(2, 4))), r.choice([2, 4])
    sizes = r.choice([(4, 8), (8, 4), (4, 12, 8), (8, 4, 4), (6, 2), (2, 8, 4)])
    mixed = [KVGroup("full" if r.random() < 0.5 else "sliding", window(), size) for size in sizes]
    return tuple(KVGroup("full", None, g.block_size) if g.type == "full" else g for g in mixed), sizes[0]


def _workload(r: Random, settings: EngineSettings, timed: bool, n: int) -> Workload:
    longest = settings.max_model_len or 64
    explicit, alike = r.random() < 0.2, r.random() < 0.35
    tokens = np.array([r.randint(1, 5) for _ in range(400)], np.int32)
    prompts: list[Runs] = []
    outputs: list[Runs] = []
    for i in range(n):
        prompts.append(_beginning(r, longest, i) if alike else _prompt(r, prompts, outputs, longest, i, explicit))
        room = longest - _length(prompts[-1])
        count = r.randint(1, max(1, min(40, room + 3)))
        outputs.append([(SAME_OUTPUT if r.random() < 0.2 else OWN_OUTPUT + i, 0, count)])
    runs = np.array([run for p, o in zip(prompts, outputs, strict=True) for run in p + o], RUN)
    owner = np.array([i for i, (p, o) in enumerate(zip(prompts, outputs, strict=True)) for _ in p + o], np.int64)
    merged, owner = merge_runs(runs, owner)
    arrive, after = _arrivals(r, n, timed)
    some = r.random
    loras = (Lora("a", 1, "/a"), Lora("b", 2, "/b"), Lora("a", 3, "/other"))
    images, first_image = _images(r, prompts) if some() < 0.2 else (np.zeros(0, IMAGE), None)
    return Workload(
        "case",
        "test",
        arrive,
        np.array([_length(p) for p in prompts], np.int32),
        np.array([_length(o) for o in outputs], np.int32),
        run_offsets(owner, n),
        merged,
        tokens if explicit else np.zeros(0, np.int32),
        ids=[f"{r.choice('xyz')}{i}" for i in range(n)] if some() < 0.5 else None,
        salt=np.array([r.choice([0, 0, 1, 2]) for _ in range(n)], np.int32) if some() < 0.3 else None,
        salts=("", "s", "t"),
        lora=np.array([r.choice([-1, 0, 1, 2]) for _ in range(n)], np.int32) if some() < 0.4 else None,
        loras=loras,
        first_image=first_image,
        images=images,
        image_identifiers=("cat", "dog") if first_image is not None else (),
        priority=np.array([r.randint(-1, 2) for _ in range(n)], np.int32) if settings.policy == "priority" else None,
        skip_cache=np.array([some() < 0.2 for _ in range(n)]) if some() < 0.3 else None,
        after=after,
        tie=arrive + r.choice([0, 1e-6]) * np.arange(n) if some() < 0.5 else None,
        actions=_actions(r, n, float(arrive.max()), timed) if some() < 0.4 else np.zeros(0, ACTION),
        time_unit="seconds" if timed else "steps",
    )


def _length(runs: Runs) -> int:
    return sum(n for _, _, n in runs)


def _prompt(r: Random, prompts: list[Runs], outputs: list[Runs], longest: int, i: int, explicit: bool) -> Runs:
    """Shared beginnings, earlier requests' histories, tails of one's own, now and then too long to be accepted."""
    out: Runs = []
    choice = r.random()
    if prompts and choice < 0.35:
        k = r.randrange(len(prompts))
        out = _cut(prompts[k] + outputs[k], r.choice([10_000, 10_000, r.randint(1, longest)]))
    elif choice < 0.75:
        out = [(r.choice(SHARED), 0, r.randint(1, max(1, longest // 2)))]
    if explicit and r.random() < 0.6:
        at = r.choice([0, 0, 0, 40, 80])
        out = [(-1, at, r.randint(1, 40)), *([] if r.random() < 0.5 else out)]
    if not out or r.random() < 0.6:
        own = r.randint(1, r.choice([3, 12, longest // 2]))
        out = [*out, (r.choice([7, 8, 100 + i]), r.choice([0, 0, 2]), own)]
    if _length(out) >= longest and r.random() < 0.85:
        out = _cut(out, r.randint(1, longest - 1))
    return out


def _beginning(r: Random, longest: int, i: int) -> Runs:
    """The same content at many lengths, some with a tail: hits end everywhere, and groups disagree where."""
    out: Runs = [(1, 0, r.randint(1, longest + 2))]
    if r.random() < 0.3:
        out.append((100 + i, 0, r.randint(1, 6)))
    return out if r.random() < 0.2 else _cut(out, longest - 1)


def _cut(runs: Runs, most: int) -> Runs:
    out: Runs = []
    for seed, start, n in runs:
        if most > 0:
            out.append((seed, start, min(n, most)))
        most -= n
    return out


def _arrivals(r: Random, n: int, timed: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Arrivals with ties; some cases chain requests behind earlier ones."""
    gaps = [r.choice([0.0, r.random() * 0.08]) if timed else r.choice([0.0, 0.0, 1.0, 3.0]) for _ in range(n)]
    arrive = np.cumsum(gaps)
    if r.random() < 0.6:
        return arrive, None
    after = np.array([r.randrange(i) if i and r.random() < 0.5 else -1 for i in range(n)], np.int32)
    arrive[after >= 0] = [r.choice([0.0, 0.02, 0.1]) if timed else float(r.choice([0, 1, 4])) for _ in range(int((after >= 0).sum()))]
    return arrive, after


def _images(r: Random, prompts: list[Runs]) -> tuple[np.ndarray, np.ndarray]:
    """Two pictures at a few places, so that equal prompts differ in a picture or only in where it stands."""
    images, counts = [], []
    for prompt in prompts:
        at, count = r.choice([0, 1, 1, 2]), 0
        while at + 1 < _length(prompt) and r.random() < 0.7:
            length = min(r.choice([2, 2, 9]), _length(prompt) - at)
            images.append((r.randint(0, 1), at, length))
            at += length + r.choice([0, 1, 4])
            count += 1
        counts.append(count)
    return np.array(images, IMAGE), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _actions(r: Random, n: int, last: float, timed: bool) -> np.ndarray:
    out = []
    for _ in range(r.randint(1, 6)):
        at = r.uniform(0, last + 0.3) if timed else float(r.randint(0, int(last) + 12))
        op = r.choice([ABORT, ABORT, ABORT, RESET, RESET_RUNNING])
        out.append((at, r.randint(-1, n - 1) if op == ABORT else -1, op))
    return np.array(sorted(out), ACTION)
