"""The settings of every engine, under the engine's own names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simkv.errors import SettingsError
from simkv.settings.base import Settings, parse_value
from simkv.settings.contiguous import ContiguousSettings
from simkv.settings.sglang import SglangSettings
from simkv.settings.v0 import V0Settings
from simkv.settings.vllm import EngineSettings, KVGroup

__all__ = [
    "ENGINES",
    "ContiguousSettings",
    "EngineSettings",
    "KVGroup",
    "Settings",
    "SglangSettings",
    "V0Settings",
    "parse_value",
    "settings_class",
    "settings_from",
]

ENGINES: dict[str, type[Settings]] = {
    "vllm": EngineSettings,
    "sglang": SglangSettings,
    "vllm-v0": V0Settings,
    "contiguous": ContiguousSettings,
}
"""Every engine by the name that ``--engine`` takes."""


def settings_class(engine: str) -> type[Settings]:
    """The settings of an engine. Raises SettingsError for an unknown one."""
    if engine not in ENGINES:
        raise SettingsError("engine", engine, ", ".join(ENGINES))
    return ENGINES[engine]


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values; ``engine`` among them says whose they are (default vLLM)."""
    return settings_class(str(values.get("engine", "vllm"))).from_mapping(values)
