"""Small random workloads and configurations that use every feature: pools so tight that leaves are evicted and requests retracted."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.sglang.layout import EVICTION_POLICIES, SCHEDULE_POLICIES
from simkv.engine.step_time import StepTime, linear, step_index
from simkv.workload.workload import ABORT, ACTION, RESET, RUN, Lora, Workload, merge_runs, run_offsets

POLICY_CONFIG = {"slru": {"protected_threshold": 3}, "tlru": {"threshold": 24, "next_prompt_estimate": 8}}


def draw_engine(r: Random, most_requests: int = 20, **fixed: Any) -> SglangEngine:
    """An engine over a random workload; the same for the same state of ``r``."""
    timed = r.random() < 0.5
    config = draw_config(r, **fixed)
    workload = draw_workload(r, config, timed, r.randint(1, most_requests))
    step_time: StepTime = linear(r.choice([0.01, 0.003]), r.choice([0.0, 4e-5]), r.choice([0.0, 2e-4])) if timed else step_index()
    return SglangEngine(workload, config, step_time.record(), log=True)


def draw_config(r: Random, **fixed: Any) -> SglangConfig:
    page = r.choice([1, 1, 2, 4, 16])
    eviction = r.choice(EVICTION_POLICIES)
    priority = r.random() < 0.4
    values: dict[str, Any] = {
        "page_size": page,
        "capacity": r.choice([80, 150, 400]) * max(1, page // 2),
        "max_running_requests": r.choice([1, 3, 8, 64]),
        "context_length": r.choice([60, 4096]),
        "max_input_len": r.choice([None, None, 45]),
        "schedule_policy": r.choice(SCHEDULE_POLICIES),
        "radix_eviction_policy": eviction,
        "radix_eviction_policy_config": POLICY_CONFIG.get(eviction, {}) if r.random() < 0.7 else {},
        "chunked_prefill_size": r.choice([None, 16, 48, 8192]),
        "max_prefill_tokens": r.choice([32, 128, 16384]),
        "schedule_conservativeness": r.choice([0.02, 0.3, 1.0]),
        "enable_mixed_chunk": r.random() < 0.3,
        "enable_priority_scheduling": priority,
        "schedule_low_priority_values_first": priority and r.random() < 0.5,
        "priority_preemption": priority and r.random() < 0.7,
        "priority_scheduling_preemption_threshold": r.choice([0, 10]),
        "retraction_policy": "priority" if priority and r.random() < 0.5 else "length",
        "disable_radix_cache": r.random() < 0.1,
        "random_seed": r.randrange(1 << 20),
    }
    return SglangConfig(**{**values, **fixed})


def draw_workload(r: Random, config: SglangConfig, timed: bool, n: int) -> Workload:
    """Prompts of one or two shared beginnings and an end of their own; some continue an earlier request's answer."""
    lists: list[list[tuple[int, int, int]]] = []
    prompts, outputs, after = [], [], []
    for i in range(n):
        parent = r.randrange(i) if i and r.random() < 0.25 else -1
        if parent >= 0:
            runs = list(lists[parent])
        else:
            runs = [(r.choice([1, 2, 3]), 0, r.choice([5, 16, 33]))]
            if r.random() < 0.5:
                runs.append((r.choice([4, 5]), 0, r.choice([3, 17])))
        runs.append((100 + i, 0, r.randint(1, 12)))
        prompts.append(sum(run[2] for run in runs))
        outputs.append(r.choice([1, 2, 7, 30]))
        lists.append([*runs, (1000 + i, 0, outputs[-1])])
        after.append(parent if r.random() < 0.5 else -1)
    owner = np.repeat(np.arange(n), [len(runs) for runs in lists])
    runs, owner = merge_runs(np.array([run for one in lists for run in one], RUN), owner)
    arrive = np.sort([r.uniform(0, 0.3) if timed else float(r.randrange(25)) for _ in range(n)])
    chained = np.array(after)
    arrive[chained >= 0] = 0.02 if timed else 2.0
    return Workload(
        "random",
        "random",
        arrive,
        np.array(prompts, np.int32),
        np.array(outputs, np.int32),
        run_offsets(owner, n),
        runs,
        max_new=np.array([o + r.choice([0, 0, 5, 40]) for o in outputs], np.int32),
        ignore_eos=np.array([r.random() < 0.2 for _ in range(n)]),
        priority=np.array([r.choice([0, 0, 1, 20, -15]) for _ in range(n)], np.int32),
        salt=np.array([r.choice([0, 0, 0, 1]) for _ in range(n)], np.int32),
        salts=("", "pepper"),
        lora=np.array([r.choice([-1, -1, 0]) for _ in range(n)], np.int32),
        loras=(Lora("adapter", 1, "/lora/adapter"),),
        after=chained.astype(np.int32) if (chained >= 0).any() else None,
        actions=_actions(r, n, timed),
        time_unit="seconds" if timed else "steps",
    )


def _actions(r: Random, n: int, timed: bool) -> npt.NDArray[np.void]:
    if r.random() < 0.6:
        return np.zeros(0, ACTION)
    drawn = [(r.uniform(0, 0.5) if timed else r.randrange(40), r.randrange(-1, n), ABORT) for _ in range(r.randint(1, 4))]
    drawn.append((r.uniform(0.2, 2) if timed else r.randrange(20, 200), -1, RESET))
    return np.array(sorted(drawn), ACTION)
