"""A file may record the settings it was made with. When it is opened they become the controls' values; what is changed then wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from simkv.errors import SettingsError
from simkv.settings import EngineSettings
from simkv.ui import text

_OPEN, _BEFORE, _ENGINE_OF = "_recorded_source", "_before_recorded", "_recorded_engine"


def control_values(engine: Mapping[str, Any], controls: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the controls out of recorded settings; empty if there are none or they are not valid (the page says why).

    Args:
        engine: what the file records.
        controls: the controls by name, with their defaults; ``memory`` is where the pool's size comes from.
    """
    try:
        settings = EngineSettings.from_mapping(engine).to_mapping()
    except SettingsError:
        return {}
    found = {name: settings[name] for name in engine if name in controls}
    if "num_gpu_blocks" in found:
        found["memory"] = "GPU" if found["num_gpu_blocks"] is None else "blocks"
    for name, default in controls.items():
        if isinstance(default, float) and name in found:
            found[name] = float(found[name]) if found[name] is not None else default
    if found.get("num_gpu_blocks", 0) is None:
        del found["num_gpu_blocks"]
    return found


def take_over(source: str, engine: Mapping[str, Any], controls: Mapping[str, Any]) -> None:
    """Set the controls to what a newly opened file records, and back when it is left. To be called before they are drawn.

    Args:
        source: identity of the file.
    """
    now, state = (source if engine else ""), st.session_state
    if state.get(_OPEN, "") == now:
        return
    for name, value in state.get(_BEFORE, {}).items():
        state[name] = value
    wanted = control_values(engine, controls)
    state[_OPEN], state[_BEFORE] = now, {name: state.get(name, controls[name]) for name in wanted}
    for name, value in wanted.items():
        state[name] = value


def take_over_engine(source: str, engine: str | None) -> None:
    """Choose the engine whose settings a newly opened file records. To be called before the choice is drawn."""
    if engine is not None and st.session_state.get(_ENGINE_OF) != source:
        st.session_state["engine"] = engine
    st.session_state[_ENGINE_OF] = source if engine is not None else ""


def draw(engine: Mapping[str, Any], controls: Mapping[str, Any]) -> None:
    """Say that the controls show what the file records, and which recorded settings have no control here."""
    if not engine:
        return
    shown = control_values(engine, controls)
    hidden = {n: v for n, v in engine.items() if n not in controls and v != EngineSettings().to_mapping().get(n) and v not in ((), None)}
    rest = f" Also in force, without a control here: {', '.join(f'{n}={v}' for n, v in hidden.items())}." if hidden else ""
    names = ", ".join(n for n, v in shown.items() if n != "memory" and v != controls[n]) or "all at their defaults"
    told = f"This file records settings of its own, and the controls were set to them ({names}). What you change wins.{rest}"
    st.caption(text.plain(told, 600))


def with_value(options: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """The options of a control, and the recorded value if that is none of them; numbers in order."""
    if value is None or value in options:
        return options
    more = (*options, value)
    return tuple(sorted(more)) if all(isinstance(v, (int, float)) for v in more) else more
