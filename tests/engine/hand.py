"""Hand-made cases: the recorder's input format, written in the test that needs it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from simkv.engine.engines import merge
from simkv.engine.resolve import resolve
from simkv.engine.step_time import for_workload
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from simkv.workload.registry import read_bytes
from simkv.workload.workload import RUN, Workload
from tests.engine.cases import Case

VIRTUAL = {"mode": "virtual", "a": 0.01, "b": 0.0, "c": 0.0}


def request(rid: str, prompt: int | list[Any], output: int = 1, arrive: float = 0, **more: Any) -> dict[str, Any]:
    """A request; a number as prompt means that many tokens nobody else has."""
    own = int.from_bytes(rid.encode(), "big") % 1_000_003 + 10_000
    segments = [{"seed": own, "n": prompt}] if isinstance(prompt, int) else prompt
    return {"id": rid, "arrive": arrive, "prompt": segments, "output_len": output, **more}


def shared(n: int, seed: int = 1) -> dict[str, int]:
    """The first ``n`` tokens of content ``seed``."""
    return {"seed": seed, "n": n}


def workload(requests: list[dict[str, Any]], actions: list[dict[str, Any]] | None = None, time: Any = None, **config: Any) -> Workload:
    """Block size 4 and a pool of 100 blocks unless ``config`` says otherwise."""
    full = {"block_size": 4, "num_gpu_blocks": 100, "max_model_len": 256, **config}
    document = {"config": full, "time": time or {"mode": "step"}, "requests": requests, "actions": actions or []}
    return read_bytes(json.dumps(document).encode(), "hand.json")


def case(*args: Any, version: str = "0.32", **config: Any) -> Case:
    """The same ready for engine and reference."""
    w = workload(*args, **config)
    settings = merge(EngineSettings(engine_version=version), w)
    return Case(w, resolve(settings, w, check_pool=False), for_workload(w, settings))


def run(*args: Any, version: str = "0.32", **config: Any) -> Run:
    """The same replayed."""
    return replay(workload(*args, **config), EngineSettings(engine_version=version))


def nothing() -> Workload:
    """No request at all."""
    none, i4 = np.zeros(0), np.zeros(0, np.int32)
    return Workload("nothing", "test", none, i4, i4, np.zeros(1, np.int64), np.zeros(0, RUN))
