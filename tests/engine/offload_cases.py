"""Small random workloads with a host tier of any kind and size, timed in steps or seconds."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np

from simkv.engine.resolve import resolve
from simkv.engine.vllm.engine import VllmEngine
from simkv.workload.workload import ABORT, RESET_CONNECTOR
from tests.engine.cases import Case, draw_case


def draw_offload_case(r: Random, connector: str | None = None) -> Case:
    """A case with one full-attention group and a host tier; the same for the same state of ``r``."""
    while True:
        base = draw_case(r, 12)
        if base.settings.profile.version == "0.32" and len(base.settings.groups) == 1 and base.settings.groups[0].type == "full":
            break
    s = base.settings
    actions = base.workload.actions.copy()
    resets = actions["op"] != ABORT
    actions["op"][resets] += np.array([RESET_CONNECTOR * (r.random() < 0.5) for _ in range(int(resets.sum()))], np.int32)
    limits = {
        name: np.array([r.choice([-1, -1, 0, 8, 24]) for _ in range(len(base.workload))], np.int32)
        for name in ("max_load_tokens", "max_offload_tokens")
        if r.random() < 0.3
    }
    workload = dataclasses.replace(base.workload, actions=actions, engine=_settings(r, s, connector), **limits)
    from simkv.engine.engines import merge
    from simkv.settings import EngineSettings

    settings = merge(EngineSettings(), workload)
    return Case(workload, resolve(settings, workload, check_pool=False), base.step_time)


def _settings(r: Random, s, connector: str | None) -> dict[str, object]:  # type: ignore[no-untyped-def]
    names = (
        "block_size num_gpu_blocks max_num_seqs max_num_batched_tokens max_model_len enable_chunked_prefill async_scheduling"
        " long_prefill_token_threshold policy max_loras scheduler_reserve_full_isl"
    )
    simple = r.random() < 0.5 if connector is None else connector == "simple"
    return {name: getattr(s, name) for name in names.split()} | {
        "engine_version": "0.32",
        "enable_prefix_caching": True if simple else s.enable_prefix_caching,
        "kv_offload_connector": "simple" if simple else "native",
        "kv_offload_num_chunks": r.choice([2, 3, 5, 9, 20, 60]),
        "kv_offload_blocks_per_chunk": None if simple else r.choice([1, 1, 2, 3]),
        "kv_offload_eviction_policy": r.choice(["lru", "arc"]),
        "kv_offload_store_threshold": r.choice([0, 0, 2, 3]),
        "kv_offload_max_tracker_size": r.choice([4, 30]),
        "kv_offload_prompt_only": r.random() < 0.5,
        "kv_offload_lazy": r.random() < 0.4,
        "kv_offload_store_latency": r.choice([0, 1, 2, 5]),
        "kv_offload_load_latency": r.choice([0, 1, 3, 6]),
        "kv_offload_bandwidth": r.choice([1e6, 1e8, 1e11]),
    }


def engine_of(case: Case, *, log: bool = True) -> VllmEngine:
    """A replica at its beginning."""
    return VllmEngine(case.workload, case.settings, case.step_time.record(), log=log)
