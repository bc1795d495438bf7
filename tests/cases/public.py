"""The public cases: copies of them as JSON beside this file, so that the tests need nothing else; and a way to run requests one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from tests.engine.hand import request, shared, workload

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "cases" / "cases_public.yaml"
APART_S = 20.0
"""Seconds between two requests of which the second comes when the first has ended."""


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The cases of one file by id."""
    return {c["id"]: c for c in json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))["cases"]}


def assert_copy_is_true(name: str, tag: str) -> None:
    """The copy has every case of this tag, word for word. Skips where the original is not at hand."""
    if not SHARED.exists():
        pytest.skip("the original is not beside this checkout")
    yaml = pytest.importorskip("yaml", reason="the original is YAML")
    original = [c for c in yaml.safe_load(SHARED.read_text(encoding="utf-8"))["cases"] if tag in c["tags"]]
    fields = ("id", "symptom", "input", "expected", "tolerance", "source")
    assert cases(name) == {c["id"]: {field: c[field] for field in fields} for c in original}


def one_by_one(prompts: list[list[Any]], output: int = 1, **config: Any) -> Run:
    """Prompts as segments, each sent when the one before has long ended; nothing is evicted unless ``config`` makes the pool small."""
    requests = [request(f"r{i}", prompt, output, arrive=i) for i, prompt in enumerate(prompts)]
    return run(requests, **config)


def run(requests: list[dict[str, Any]], version: str = "0.32", events: bool = True, **config: Any) -> Run:
    """Requests replayed in steps, one step per unit of ``arrive``, each prompt in one step, unless ``config`` says otherwise."""
    full = {"num_gpu_blocks": 100_000, "max_model_len": 200_000, "max_num_batched_tokens": 200_000, **config}
    found = replay(workload(requests, **full), EngineSettings(engine_version=version), events=events)
    assert found.status == "complete"
    return found


def hits(found: Run) -> list[int]:
    """Tokens each request found at its first admission."""
    return [int(h) for h in found.requests["hit"]]


def rate(found: Run) -> float:
    """Hits over queries, as the engine counts them."""
    return float(found.summary()["hit_rate"])


def own(number: int, tokens: int) -> dict[str, int]:
    """Tokens that only the request of this number sends."""
    return shared(tokens, seed=10_000 + number)
