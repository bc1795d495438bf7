"""The cards of the sides: A is the left column's settings, B to D say what they change of it. Their texts stand in the address."""

from __future__ import annotations

import dataclasses
from typing import Any

import streamlit as st

from simkv.comparison.choices import NAMES, derived, read_text, write_text
from simkv.comparison.same_memory import TOKENS
from simkv.engine.engines import PACKAGES
from simkv.errors import SimkvError
from simkv.fleet.routing import policy_names
from simkv.settings import Settings, parse_value, settings_class
from simkv.settings.fleet import FleetSettings
from simkv.ui import engine_form, text
from simkv.ui.compare import fleet_sides

PARAMETERS = ("b", "c", "d")
"""The address's names for the texts of B, C and D, in the command line's grammar."""
COLOURS = {"A": "blue", "B": "orange", "C": "green", "D": "violet"}
MOST_CHANGES = 12
_TEXTS, _EDITION = "_compare_texts", "_compare_edition"
_FIRST = (
    "router",
    "replicas",
    "block_size",
    "page_size",
    TOKENS,
    "kv_cache_dtype",
    "gpu",
    "max_num_seqs",
    "max_running_requests",
    "enable_prefix_caching",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where on a side's card its figures go, and the row of its buttons."""

    figures: Any
    row: Any


def opening(fleet: FleetSettings | None = None) -> list[str]:
    """What the page compares before anybody has asked: two engines, and twice the tokens in the same memory; of a fleet
    another router.

    SGLang's own default is pages of one token; pages of 16 are as fine as vLLM's blocks and 16 times faster to draw.
    """
    if fleet is not None:
        return [f"router={'sglang-cache-aware' if fleet.router != 'sglang-cache-aware' else 'round-robin'}"]
    return ["sglang,page_size=16", "kv_cache_dtype=fp8"]


def texts(fleet: FleetSettings | None = None) -> list[str]:
    """The texts of B, C, D: from the address when the page is opened, then what the cards say."""
    if _TEXTS not in st.session_state or (any(p in st.query_params for p in PARAMETERS) and _EDITION not in st.session_state):
        given = [st.query_params[p] for p in PARAMETERS if p in st.query_params]
        st.session_state[_TEXTS] = given or opening(fleet)
        st.session_state.setdefault(_EDITION, 0)
    found: list[str] = st.session_state[_TEXTS]
    return found


def replace(now: list[str]) -> None:
    """Put other texts on the cards, whose controls are made anew."""
    st.session_state[_TEXTS] = now[: len(PARAMETERS)]
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def _add() -> None:
    replace([*texts(), ""])


def _remove(i: int) -> None:
    replace([t for k, t in enumerate(texts()) if k != i])


def _empty(i: int) -> None:
    replace(["" if k == i else t for k, t in enumerate(texts())])


def write_url(now: list[str]) -> None:
    """The texts into the address."""
    for name, value in zip(PARAMETERS, [*now, *[None] * len(PARAMETERS)], strict=False):
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value


def draw(base: Settings, fleet: FleetSettings | None = None) -> tuple[list[str], list[Place]]:
    """Draw the cards. Returns the texts of B, C, D and for every side, A first, its places."""
    now = texts(fleet)
    places: list[Place] = []
    said: list[str] = []
    columns = st.columns([3] * (1 + len(now)) + [1] * (len(now) < len(PARAMETERS)), gap="small")
    with columns[0].container(border=True, height="stretch", key="card.A"):
        st.markdown(f"{_badge('A')} {engine_form.TITLES.get(base.engine, base.engine)} as in the left column")
        places.append(Place(st.container(gap=None), st.container(horizontal=True, vertical_alignment="center")))
    for i, given in enumerate(now):
        with columns[1 + i].container(border=True, height="stretch", key=f"card.{NAMES[1 + i]}"):
            title, figures = st.container(), st.container(gap=None)
            row = st.container(horizontal=True, gap="small", vertical_alignment="center")
            with row:
                said.append(_card(i, given, base, fleet or FleetSettings()))
            title.markdown(f"{_badge(NAMES[1 + i])} {_words(said[-1], base)}")
            places.append(Place(figures, row))
    if len(now) < len(PARAMETERS):
        with columns[-1].container(height="stretch", vertical_alignment="center"):
            st.button("Add", icon=":material/add:", on_click=_add, help="One more side", key="add_side")
    st.session_state[_TEXTS] = said
    write_url(said)
    return said, places


def _badge(name: str) -> str:
    return f":{COLOURS[name]}-badge[**{name}**]"


def _card(i: int, given: str, base: Settings, fleet: FleetSettings) -> str:
    """One side's controls, a click away; returns what they say now."""
    name = NAMES[1 + i]
    with st.popover("Change", help=f"Engine and settings of {name}"):
        said = _controls(i, given, base, fleet)
    if len(texts()) > 1:
        st.button("Remove", on_click=_remove, args=(i,), help=f"Leave {name} out", key=f"away.{i}", type="tertiary")
    return said


def _words(said: str, base: Settings) -> str:
    """The differences as people read them."""
    try:
        changes = read_text(said)
    except SimkvError:
        return text.plain(said, 80)
    engine = changes.pop("engine", base.engine)
    parts = [engine_form.TITLES.get(str(engine), str(engine))] if engine != base.engine else []
    parts += [f"{n} = {v}" for n, v in changes.items()]
    return text.plain(", ".join(parts) or "the same as A", 120)


def _controls(i: int, given: str, base: Settings, fleet: FleetSettings) -> str:
    """Engine, the settings that differ, and a control for each."""
    try:
        changes = read_text(given)
        engine = str(changes.pop("engine", base.engine))
        settings_class(engine)
        router = str(changes.get("router", fleet.router))
        of_fleet = fleet_sides.fields(router)
        inherited_fleet = fleet_sides.values(fleet_sides.derived(fleet, {"router": router})) | {"router": fleet.router}
    except SimkvError as problem:
        st.error(text.plain(str(problem), 400))
        st.button("Start again", on_click=_empty, args=(i,), key=f"again.{i}")
        return given
    key = f"side{st.session_state.get(_EDITION, 0)}.{i}"
    engines = list(PACKAGES)
    start = engines.index(engine) if engine in engines else 0
    chosen = str(st.selectbox("engine", engines, start, format_func=lambda n: engine_form.TITLES.get(n, n), key=f"{key}.engine"))
    known = engine_form.fields(chosen)
    changes = {k: v for k, v in changes.items() if chosen == engine or fleet_sides.is_of_fleet(k)}
    options = sorted({*known, TOKENS, *of_fleet, *changes}, key=lambda n: (_rank(n), n))
    first = [n for n in changes if n in options]
    names = st.multiselect(
        "what differs from A",
        options,
        first,
        key=f"{key}.{chosen}.names",
        max_selections=MOST_CHANGES,
        help="Everything else is as in A, the memory for the KV cache included.",
    )
    inherited = {**derived(base, {"engine": chosen})[0].to_mapping(), **inherited_fleet}
    out: dict[str, Any] = {} if chosen == base.engine else {"engine": chosen}
    for name in names:
        now = changes.get(name, inherited.get(name))
        value = _control(f"{key}.{chosen}.{name}", chosen, known.get(name) or of_fleet.get(name), name, now)
        if name == TOKENS or value != inherited.get(name):
            out[name] = value
    return write_text(out) if out else ""


def _control(key: str, engine: str, field: dataclasses.Field[Any] | None, name: str, value: Any) -> Any:
    if name == TOKENS:
        given = parse_value(value) if isinstance(value, str) else value
        start = given if isinstance(given, int) else 100_000
        return int(st.number_input(name, 1, 1 << 30, start, 1000, key=key, help="Tokens of KV memory, whatever the engine calls its size."))
    if name == "router":
        return _router(key, str(value))
    if field is None:
        return st.text_input(name, str(value), key=key, help="As in a TOML file.")
    given = parse_value(value) if isinstance(value, str) and field.type != "str" else value
    try:
        return engine_form.control(engine, field, given, key=key)
    except (st.errors.StreamlitAPIException, TypeError, ValueError):
        # A value from an address that no control can show: the settings themselves will refuse it with the reason.
        return st.text_input(name, str(value), key=f"{key}.text")


def _router(key: str, value: str) -> str:
    options = policy_names() if value in policy_names() else [*policy_names(), value]
    return str(st.selectbox("router", options, options.index(value), key=key, help="The rest of the fleet is as in A."))


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)
