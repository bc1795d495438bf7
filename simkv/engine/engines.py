"""The engines by name. Each is imported when it is first asked for: importing one is importing its compiled code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import Engine, Resolved
from simkv.errors import SettingsError
from simkv.settings import Settings, settings_class
from simkv.workload.workload import Workload

S = TypeVar("S", bound=Settings)


def recorded_engine(workload: Workload) -> str:
    """Whose settings the workload's file records; vLLM's if it does not say."""
    return str(workload.engine.get("engine", "vllm"))


def default_settings(workload: Workload) -> Settings:
    """Settings where the user named none: of the engine the workload was recorded with."""
    return settings_class(recorded_engine(workload))()


def for_engine(workload: Workload, settings: Settings) -> tuple[Workload, str | None]:
    """The workload without recorded settings of another engine, and the sentence that says so."""
    recorded = recorded_engine(workload)
    if not workload.engine or recorded == settings.engine:
        return workload, None
    note = f"The settings recorded in the workload's file are {recorded}'s and are not used for {settings.engine}."
    return replace(workload, engine={}), note


def merge(settings: S, workload: Workload, explicit: Collection[str] = ()) -> S:
    """The user's settings over those recorded in the workload's file over the engine's defaults.

    Args:
        explicit: names of settings the user wrote down, so that a value equal to the default also wins
            (``--set num_gpu_blocks=none``). Settings that differ from the defaults always win.
    """
    if not workload.engine or recorded_engine(workload) != settings.engine:
        return settings
    mine = settings.to_mapping()
    over = {**settings.changed(), **{name: mine[name] for name in explicit}}
    base = {**type(settings)().to_mapping(), **workload.engine}
    return type(settings).from_mapping({**base, **over})


def overruled(workload: Workload, names: Collection[str]) -> Workload:
    """The workload without its recorded settings of these names: what the user says about them holds, even a default."""
    return replace(workload, engine={name: value for name, value in workload.engine.items() if name not in names})


def resolve_for(settings: Settings, workload: Workload) -> Any:
    """Every setting of any engine filled in for one workload (``Resolved`` of that engine).

    Raises:
        SettingsError: what the engine would refuse at start-up.
    """
    return _entry(settings.engine).resolve(settings, workload)


def make_engine(
    workload: Workload, resolved: Resolved, step_time: npt.NDArray[np.void], *, log: bool, max_events: int | None = None
) -> Engine:
    """One replica, ready to ``advance``. ``step_time`` is ``STEP_TIME[1]``."""
    engine: Engine = _entry(resolved.engine).make(workload, resolved, step_time, log=log, max_events=max_events)
    return engine


def writes_kv_events(resolved: Resolved) -> bool:
    """Whether such a replica can write KV events itself (``write_kv_events``), so that routers need no event log."""
    asked = getattr(_entry(resolved.engine), "writes_kv_events", None)
    return asked is not None and bool(asked(resolved))


def bytes_needed(resolved: Resolved, requests: int) -> tuple[int, int]:
    """Memory of this machine a replay fills at once: bytes per block of the pool, and bytes besides."""
    per_block, others = _entry(resolved.engine).bytes_needed(resolved, requests)
    return int(per_block), int(others)


def is_compiled(part: str) -> bool:
    """Whether the code of ``Settings.compiled_as`` lies on disk."""
    from simkv.jit import noted_compiled

    return noted_compiled(_package(part), part)


def note_compiled(part: str) -> None:
    """To be called after a replay that needed this code."""
    from simkv.jit import note_compiled as note

    note(_package(part), part)


def _package(part: str) -> Path:
    module = import_module(f"simkv.engine.{PACKAGES[part.partition('+')[0]]}.compiled")
    return Path(str(module.__file__)).parent


def _entry(engine: str) -> Any:
    """The module ``entry`` of an engine's package: ``resolve(settings, workload)``, ``make(…)``, ``bytes_needed(…)``."""
    if engine not in PACKAGES:
        raise SettingsError("engine", engine, ", ".join(PACKAGES))
    return import_module(f"simkv.engine.{PACKAGES[engine]}.entry")


PACKAGES = {"vllm": "vllm", "sglang": "sglang", "vllm-v0": "vllm_v0", "contiguous": "contiguous"}
"""Engine -> its package below simkv/engine."""
