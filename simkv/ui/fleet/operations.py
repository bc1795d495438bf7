"""What is done to the replicas, as a short text for the address and as an editor: ``deploy,at=600,startup_s=30;fail,at=900,replica=3``."""

from __future__ import annotations

import dataclasses
from typing import Any

import streamlit as st

from simkv.errors import InputError, SettingsError
from simkv.settings import parse_value
from simkv.settings.fleet import Operation
from simkv.ui import text

PARAMETER = "ops"
MOST = 12
GRAMMAR = "KIND,NAME=VALUE,… as on the command line, a semicolon between operations: deploy,at=600,warm=8;fail,at=900,replica=3"
OF_KIND = {
    "deploy": ("batch", "startup_s", "drain", "drain_timeout_s", "warm", "replica"),
    "fail": ("replica", "down_s", "startup_s", "warm"),
    "add": ("count", "startup_s", "warm"),
    "remove": ("replica", "drain", "drain_timeout_s"),
}
"""What each kind of operation asks for."""
FIRST: dict[str, dict[str, Any]] = {"deploy": {}, "fail": {"replica": 0, "down_s": 60.0}, "add": {}, "remove": {"replica": 0}}
_TEXTS, _EDITION = "_fleet_operations", "_fleet_operations_edition"


def read_text(given: str) -> tuple[Operation, ...]:
    """The operations a text names, in its order.

    Raises:
        InputError: no text of this grammar.
        SettingsError: a kind, a setting or a value that there is not.
    """
    return tuple(_read_one(part) for part in given.split(";") if part.strip())


def _read_one(given: str) -> Operation:
    kind, *pairs = given.split(",")
    values: dict[str, Any] = {"kind": kind.strip()}
    for pair in pairs:
        name, sep, value = pair.partition("=")
        if not sep:
            raise InputError(f'"{pair.strip()}" is no setting of an operation', field=PARAMETER, expected=GRAMMAR)
        values[name.strip()] = parse_value(value.strip())
    return Operation.from_mapping(values)


def write_text(operations: tuple[Operation, ...]) -> str:
    """The text that ``read_text`` reads back as these."""
    return ";".join(_write_one(o) for o in operations)


def _write_one(o: Operation) -> str:
    changed = {k: v for k, v in o.changed().items() if k not in ("kind", "at")}
    words = [f"{k}={'none' if v is None else str(v).lower() if isinstance(v, bool) else _short(v)}" for k, v in changed.items()]
    return ",".join([o.kind, f"at={_short(o.at)}", *words])


def _short(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def sentence(o: Operation) -> str:
    """An operation in words."""
    when = f"at {text.clock(o.at)}"
    if o.kind == "deploy":
        which = f"replica {o.replica}" if o.replica is not None else f"all replicas, {o.batch} at a time"
        return f"{when} deploy {which}, {'drained first' if o.drain else 'not drained'}{_warmed(o)}"
    if o.kind == "fail":
        back = "for good" if o.down_s is None else f"for {text.seconds(o.down_s + o.startup_s)}"
        return f"{when} replica {o.replica} fails {back}{_warmed(o)}"
    if o.kind == "add":
        return f"{when} add {text.counted(o.count, 'replica')}{_warmed(o)}"
    return f"{when} remove replica {o.replica}, {'drained first' if o.drain else 'at once'}"


def _warmed(o: Operation) -> str:
    return f", warmed with {text.counted(o.warm, 'prefix', 'prefixes')}" if o.warm else ""


def texts() -> list[str]:
    """One text an operation: from the address when the page is opened, then what the editor says."""
    if _TEXTS not in st.session_state:
        st.session_state[_TEXTS] = [part for part in st.query_params.get(PARAMETER, "").split(";") if part.strip()][:MOST]
    found: list[str] = st.session_state[_TEXTS]
    return found


def _replace(now: list[str]) -> None:
    st.session_state[_TEXTS] = now
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def _add(kind: str, at: float) -> None:
    _replace([*texts(), _write_one(Operation.from_mapping({"kind": kind, "at": at, **FIRST[kind]}))])


def _remove(i: int) -> None:
    _replace([t for k, t in enumerate(texts()) if k != i])


def draw(duration_s: float, replicas: int) -> tuple[Operation, ...]:
    """Draw the editor; what it says stands in the address as well. Raises SimkvError for a bad address.

    Args:
        duration_s: of the traffic: new operations come in its middle.
        replicas: at the start.
    """
    now = texts()
    said, problem = [], None
    for i, given in enumerate(now):
        try:
            said.append(_card(i, _read_one(given), replicas))
        except (SettingsError, InputError) as found:
            problem = found
            st.button("Remove what cannot be read", on_click=_remove, args=(i,), key=f"operation_away.{i}")
    if len(now) < MOST:
        at = round(duration_s / 2) if duration_s < 1e12 else 0.0
        with st.container(horizontal=True, gap="small"):
            for kind in OF_KIND:
                st.button(kind, on_click=_add, args=(kind, float(at)), key=f"operation_add.{kind}", icon=":material/add:", type="tertiary")
    if problem is not None:
        raise problem
    operations = tuple(said)
    st.session_state[_TEXTS] = [_write_one(o) for o in operations]
    _write_url(write_text(operations))
    return operations


def forget() -> None:
    """Without a fleet nothing of it stands in the address."""
    st.query_params.pop(PARAMETER, None)


def _write_url(value: str) -> None:
    if not value:
        st.query_params.pop(PARAMETER, None)
    elif st.query_params.get(PARAMETER) != value:
        st.query_params[PARAMETER] = value


def _card(i: int, o: Operation, replicas: int) -> Operation:
    key = f"operation{st.session_state.get(_EDITION, 0)}.{i}.{o.kind}"
    fields = {f.name: f for f in dataclasses.fields(Operation)}
    with st.expander(text.plain(sentence(o), 200)):
        at = float(st.number_input("at (seconds)", 0.0, 1e9, float(o.at), 10.0, key=f"{key}.at"))
        values: dict[str, Any] = {"kind": o.kind, "at": at}
        for name in OF_KIND[o.kind]:
            values[name] = _control(f"{key}.{name}", fields[name], getattr(o, name))
        st.button("Remove", on_click=_remove, args=(i,), key=f"{key}.away", type="tertiary")
    return Operation.from_mapping(values)


def _control(key: str, field: dataclasses.Field[Any], value: Any) -> Any:
    help_ = str(field.metadata["help"])
    help_ = help_[0].upper() + help_[1:] + "."
    if str(field.type).startswith("bool"):
        return st.toggle(field.name, bool(value), key=key, help=help_)
    low, high = field.metadata["min"], min(field.metadata["max"], 1 << 52)
    nothing = "all" if field.name == "replica" else "never" if "None" in str(field.type) else ""
    if str(field.type).startswith("int"):
        return st.number_input(field.name, low, high, value, 1, key=key, placeholder=nothing, help=help_)
    given = None if value is None else float(value)
    return st.number_input(field.name, float(low), float(high), given, 10.0, key=key, placeholder=nothing, help=help_)
