"""Controls for the settings of any engine, made from the settings' own description. Every control is bound to the address."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from simkv.hardware import gpus, models
from simkv.settings import Settings, settings_class

BIND: Any = "query-params"

TITLES = {"vllm": "vLLM", "sglang": "SGLang", "contiguous": "Contiguous", "vllm-v0": "vLLM V0"}
"""How an engine is called on the page."""

FIRST: dict[str, tuple[str, ...]] = {
    "contiguous": ("reservation", "allocator", "batching", "preemption_mode", "block_size", "num_gpu_blocks", "model", "gpu"),
    "sglang": ("page_size", "max_total_tokens", "model", "gpu", "tensor_parallel_size", "schedule_policy", "radix_eviction_policy"),
    "vllm-v0": ("block_size", "num_gpu_blocks", "model", "gpu", "best_of", "use_beam_search", "max_num_seqs"),
}
"""What is shown at once; the rest is one click away. Engines without a line here show their first few."""

HIDDEN = ("engine",)
SHOWN_AT_ONCE = 7
INTEGER_STEP = 1
BROWSER_MOST = (1 << 53) - 1
"""The largest whole number a browser's number keeps exactly; streamlit refuses a control that allows more."""
Options = tuple[Any, ...]


def key_of(engine: str, name: str) -> str:
    """Key of a control in the session and in the address: settings of two engines never share one."""
    return f"{engine}.{name}"


def fields(engine: str) -> dict[str, dataclasses.Field[Any]]:
    """The settings of an engine that have a control, by name."""
    return {f.name: f for f in dataclasses.fields(settings_class(engine)) if f.name not in HIDDEN and "tuple" not in str(f.type)}


def draw(engine: str, recorded: Mapping[str, Any] | None = None) -> Settings:
    """Draw the controls and return what they say over the recorded settings.

    Args:
        recorded: what the workload's file records for this engine; what is changed then wins.

    Raises:
        SettingsError: the settings contradict each other.
    """
    known = fields(engine)
    first = [name for name in FIRST.get(engine, tuple(known)[:SHOWN_AT_ONCE]) if name in known]
    told = dict(recorded or {})
    changes = controls(engine, first, told)
    with st.expander("More"):
        changes.update(controls(engine, [name for name in known if name not in first], told))
    return settings_class(engine).from_mapping({**told, **changes})


def controls(engine: str, names: Iterable[str], told: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the controls of these settings and return their values."""
    known = fields(engine)
    return {name: control(engine, known[name], told.get(name, known[name].default)) for name in names}


def control(engine: str, field: dataclasses.Field[Any], value: Any, *, key: str | None = None) -> Any:
    """One control for one setting. ``value`` is shown until somebody changes it; with a key of its own it is not bound to the address."""
    meta, declared, name = field.metadata, str(field.type), field.name
    place: dict[str, Any] = {"key": key_of(engine, name), "bind": BIND} if key is None else {"key": key}
    common: dict[str, Any] = {**place, "help": meta["help"][0].upper() + meta["help"][1:] + "."}
    options = _options(name, meta)
    if options:
        if value not in options:
            options = (*options, value)
        return st.selectbox(name, options, options.index(value), **common)
    if declared.startswith("bool") and "None" not in declared:
        return st.toggle(name, bool(value), **common)
    if declared.startswith("bool"):
        return _three_ways(name, value, common)
    if declared.startswith("int"):
        placeholder = f"{TITLES.get(engine, engine)}'s default"
        most = min(meta.get("max", BROWSER_MOST), BROWSER_MOST)
        return st.number_input(name, meta.get("min"), most, value, INTEGER_STEP, placeholder=placeholder, **common)
    if declared.startswith("float"):
        low, high = float(meta.get("min", 0.0)), float(meta.get("max", 1.0))
        given = None if value is None else float(value)
        step = 0.01 if high <= 1.0 else 0.1
        return st.number_input(name, low, high, given, step, placeholder=f"{TITLES.get(engine, engine)}'s default", **common)
    return st.text_input(name, value or "", **common) or (None if "None" in declared else "")


def _options(name: str, meta: Mapping[str, Any]) -> Options:
    if name == "model":
        return tuple(models())
    if name == "gpu":
        return tuple(gpus())
    return tuple(meta.get("choices", ()))


def _three_ways(name: str, value: bool | None, common: Mapping[str, Any]) -> bool | None:
    words = {"default": None, "on": True, "off": False}
    now = next(word for word, meant in words.items() if meant is value)
    chosen = st.segmented_control(name, list(words), default=now, required=True, **common)
    return words[str(chosen)]
