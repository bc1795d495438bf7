"""The pages, and the way from one to the other with everything that is set."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from simkv.settings import Settings
from simkv.settings.fleet import FleetSettings
from simkv.ui import engine_controls, engine_form
from simkv.ui.fleet import form, operations

OF_EXPLORE = frozenset(("step", "block", "request", "tab", "replica", "fleet_tab"))
"""What the address says of a place in one run."""
OF_COMPARE = "t"
"""The moment that Compare's maps show. Its sides stay in the address, so that the way back leads to the same comparison."""


def explore() -> StreamlitPage:
    """The first page."""
    from simkv.ui.pages import explore as module

    return st.Page(module.page, title="Explore", url_path="explore", default=True)


def compare() -> StreamlitPage:
    """Settings side by side."""
    from simkv.ui.pages import compare as module

    return st.Page(module.page, title="Compare", url_path="compare")


def scenarios() -> StreamlitPage:
    """Production failures and decisions, ready to be replayed."""
    from simkv.ui.pages import scenarios as module

    return st.Page(module.page, title="Scenarios", url_path="scenarios")


def link_to_compare() -> None:
    """A link to Compare with the settings of this page as A."""
    link("compare", {k: v for k, v in st.query_params.items() if k not in OF_EXPLORE}, "Compare with other settings")


def link_to_explore(settings: Settings, fleet: FleetSettings | None = None) -> None:
    """A link to Explore with the same traffic and these settings, where its controls can show them all."""
    controls = control_values(settings)
    if controls is not None:
        kept = {k: v for k, v in st.query_params.items() if k != OF_COMPARE and not _of_engine(k) and not _of_fleet(k)}
        link("./", {**kept, **controls, **fleet_values(fleet)}, "Explore this side")


def link(page: str, parameters: dict[str, str], label: str) -> None:
    """A link to a page whose controls then show these parameters.

    It loads the whole page: Streamlit's own ways to another page drop what the address says of the controls of this one.
    """
    address = escape(f"{page}?{urlencode(parameters)}" if parameters else page, quote=True)
    st.html(f'<a class="way" href="{address}" target="_self">{escape(label)}</a>', width="content")


def control_values(settings: Settings) -> dict[str, str] | None:
    """What the address must say for the left column to show these settings; ``None`` if one of them has no control there."""
    changed = {k: v for k, v in settings.changed().items() if k != "engine"}
    if settings.engine != "vllm":
        names = engine_form.fields(settings.engine)
        if not changed.keys() <= names.keys():
            return None
        # The choice of engine is bound to the address by what it shows.
        return {
            "engine": engine_form.TITLES[settings.engine],
            **{engine_form.key_of(settings.engine, k): _text(v) for k, v in changed.items()},
        }
    if not changed.keys() <= engine_controls.CONTROLS.keys():
        return None
    if settings.tokens_per_block not in engine_controls.BLOCK_SIZES:
        return None
    sized = {"memory": "blocks"} if changed.get("num_gpu_blocks") is not None else {}
    if sized and changed.keys() & {"model", "gpu", "tensor_parallel_size"}:
        return None  # with a pool of so many blocks the left column asks for no GPU
    return {**{k: _text(v) for k, v in changed.items() if v is not None}, **sized}


def fleet_values(fleet: FleetSettings | None) -> dict[str, str]:
    """What the address must say for the left column to show this fleet."""
    if fleet is None or fleet.replicas == 1:
        return {}
    changed = fleet.changed()
    out = {"replicas": str(fleet.replicas), "router": fleet.router}
    out |= {name: _text(changed[name]) for name in form.KEYS if name in changed and changed[name] is not None}
    if "seed" in changed:
        out["router_seed"] = str(fleet.seed)
    out |= {f"router.{fleet.router}.{name}": _text(value) for name, value in fleet.router_settings.items()}
    return out | ({operations.PARAMETER: operations.write_text(fleet.operations)} if fleet.operations else {})


def _of_fleet(parameter: str) -> bool:
    return parameter in (*form.KEYS, operations.PARAMETER) or parameter.startswith("router.")


def _of_engine(parameter: str) -> bool:
    return parameter in ("engine", *engine_controls.CONTROLS) or parameter.partition(".")[0] in engine_form.TITLES


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
