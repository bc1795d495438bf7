"""Recorded decisions of real routers: ``{router, version, policy, config, steps, …}``, one workload a file.

Steps are strictly sequential. The rule is right if the worker the real router took is among those it allows, step for step;
where the real router draws lots, its draws over the whole file must not be wildly unlikely either.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from simkv.conformance.result import RunResult
from simkv.conformance.router_steps import RouterSteps
from simkv.errors import InputError

READERS: dict[str, str] = {
    "sglang-router": "router_sglang:SglangRouterSteps",
    "smg": "router_sglang:SmgSteps",
    "vllm-router": "router_vllm:VllmRouterSteps",
    "ray.serve": "router_ray:RayServeSteps",
    "vllm production-stack": "router_production_stack:ProductionStackSteps",
    "nvidia dynamo": "router_dynamo:DynamoSteps",
}
"""First words of ``router`` -> ``module:Class`` below simkv/conformance, a subclass of ``RouterSteps``."""

HEAD = 1 << 12
KEYS = ("router", "version", "policy", "steps")


def check_router(path: Path) -> Callable[[], RunResult] | None:
    """A check of this recording, or ``None`` if the file is not one of a router."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            head = stream.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return None
    if not (b'"router"' in head and b'"policy"' in head and b'"version"' in head):
        return None
    return lambda: _check(path, opener)


def _check(path: Path, opener: Any) -> RunResult:
    try:
        with opener(path, "rt", encoding="utf-8") as stream:
            recording = json.load(stream)
    except (ValueError, OSError, EOFError, zlib.error) as problem:
        raise InputError(f"not JSON ({problem})", file=path.name, expected="a router's recorded decisions") from problem
    for key in KEYS:
        if not isinstance(recording, dict) or key not in recording:
            raise InputError(f"no {key}", file=path.name, expected="an object with " + ", ".join(KEYS))
    try:
        return _reader(str(recording["router"]), path.name).check(recording, path.name)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise InputError(
            f"a step cannot be understood ({what})", file=path.name, expected="steps as routers' recordings have them"
        ) from problem


def _reader(router: str, file: str) -> type[RouterSteps]:
    where = next((READERS[start] for start in READERS if router.lower().startswith(start.lower())), None)
    if where is None:
        raise InputError(f"unknown router {router!r}", file=file, field="router", expected="one that begins with " + ", ".join(READERS))
    module, _, attribute = where.partition(":")
    found: type[RouterSteps] = getattr(import_module(f"simkv.conformance.{module}"), attribute)
    return found
