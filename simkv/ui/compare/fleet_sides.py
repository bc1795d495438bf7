"""What a side's text changes of the fleet: ``replicas``, ``router``, ``routers`` and, after a dot, the router's own settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simkv.comparison.choices import NAMES, read_text, write_text
from simkv.errors import SimkvError
from simkv.fleet.routing import policy_class
from simkv.settings import parse_value
from simkv.settings.fleet import FleetSettings
from simkv.ui.fleet.form import described

OWN = "router."
OF_FLEET = ("replicas", "router", "routers", "event_lag_s", "metrics_interval_s", "chars_per_token")
"""Settings of the fleet that a side may change; its operations are A's."""


def is_of_fleet(name: str) -> bool:
    """Whether a name in a side's text is about the fleet."""
    return name in OF_FLEET or name.startswith(OWN)


def fields(router: str) -> dict[str, dataclasses.Field[Any]]:
    """The settings of the fleet with a control, by the name that stands in the text."""
    known = {f.name: f for f in dataclasses.fields(FleetSettings) if f.name in OF_FLEET}
    return {**known, **{OWN + f.name: f for f in described(policy_class(router))}}


def values(fleet: FleetSettings) -> dict[str, Any]:
    """A fleet as the names of the texts have it."""
    told = fleet.to_mapping()
    own = {f.name: f.default for f in dataclasses.fields(policy_class(fleet.router).Settings)} | dict(fleet.router_settings)
    return {**{name: told[name] for name in OF_FLEET}, **{OWN + name: value for name, value in own.items()}}


def split(base: FleetSettings | None, texts: Sequence[str]) -> tuple[list[str], list[FleetSettings | None]]:
    """The texts without what they say of the fleet, and the fleet of every side, A first; all ``None`` if nobody has one.

    Raises:
        SimkvError: what is no text, no router or no setting of it, with the side's name in front.
    """
    plain: list[str] = []
    told: list[dict[str, Any]] = []
    for name, text in zip(NAMES[1:], texts, strict=False):
        try:
            said = read_text(text)
        except SimkvError as problem:
            raise SimkvError(f"{name}: {problem}") from None
        told.append({k: v for k, v in said.items() if is_of_fleet(k)})
        rest = {k: v for k, v in said.items() if not is_of_fleet(k)}
        plain.append((write_text(rest) if rest else "") if told[-1] else text)
    if base is None and not any(told):
        return plain, [None] * (1 + len(texts))
    start = base or FleetSettings()
    fleets: list[FleetSettings | None] = [start]
    for name, changes in zip(NAMES[1:], told, strict=False):
        try:
            fleets.append(derived(start, changes))
        except SimkvError as problem:
            raise SimkvError(f"{name}: {problem}") from None
    return plain, fleets


def derived(base: FleetSettings, changes: Mapping[str, Any]) -> FleetSettings:
    """``base`` with ``changes``; another router begins at its own defaults. Raises SimkvError."""
    plain = {k: _value(k, v) for k, v in changes.items() if not k.startswith(OWN)}
    router = str(plain.get("router", base.router))
    own = dict(base.router_settings) if router == base.router else {}
    own |= {k.removeprefix(OWN): _value(k, v) for k, v in changes.items() if k.startswith(OWN)}
    own = policy_class(router).Settings.from_mapping(own).changed()
    return base.replace(**plain, router_settings=own)


def _value(name: str, given: Any) -> Any:
    return parse_value(given) if isinstance(given, str) and name != "router" else given
