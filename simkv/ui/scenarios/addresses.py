"""The addresses behind a scenario's buttons: Explore and Compare with exactly a variant's traffic, settings and fleet."""

from __future__ import annotations

from simkv.comparison.choices import DEFAULT, write_text
from simkv.scenarios import Traffic, Variant
from simkv.scenarios.address import changes_between
from simkv.settings.fleet import FleetSettings
from simkv.ui import navigation, sidebar, sources
from simkv.ui.compare import fleet_sides
from simkv.ui.config import SALTS, SPEEDS
from simkv.ui.fleet import form
from simkv.workload.generators import find_generator

Address = dict[str, str]


def explore(variant: Variant) -> Address | None:
    """What Explore's address must say to show a variant; ``None`` if one of its settings has no control there."""
    traffic, engine, fleet = _traffic(variant.traffic), navigation.control_values(variant.settings), _fleet(variant.fleet)
    if traffic is None or engine is None or fleet is None:
        return None
    return {**traffic, **engine, **fleet}


def compare(a: Variant, b: Variant) -> Address | None:
    """What Compare's address must say to hold ``b`` against ``a``; ``None`` where that is not one question: other requests,
    other operations, or a setting of ``a`` that has no control.
    """
    first, of_fleet = explore(a), _fleet_changes(a.fleet, b.fleet)
    if a.traffic != b.traffic or first is None or of_fleet is None:
        return None
    texts = [changes_between(a.settings, b.settings), of_fleet]
    return {**first, "b": ",".join(t for t in texts if t not in ("", DEFAULT)) or DEFAULT}


def _traffic(t: Traffic) -> Address | None:
    salts = next((shown for shown, mode in SALTS.items() if mode == t.salts), None)
    speed = next((shown for shown, factor in SPEEDS.items() if factor == t.speed), None)
    if salts is None or speed is None:
        return None
    common = {"salts": salts, "speed": speed}
    if t.kind == "trace":
        title = next((title for title, (name, _) in sources.traces().items() if name == t.name), None)
        limit = "all" if t.limit is None else str(t.limit)
        return None if title is None or limit not in sidebar.LIMITS else {"source": "Trace", "trace": title, "limit": limit, **common}
    if t.limit is not None:
        return None
    generator = find_generator(t.name)
    out = {"source": "Generator", "generator": generator.title, "seed": str(t.seed), **common}
    for name, value in generator.values(t.params).items():
        if name == "salts":
            if value != "off":
                return None  # the left column has one control for salts, whatever the source
            continue
        out[f"{t.name}.{name}"] = str(value)
    return out


def _fleet(f: FleetSettings | None) -> Address | None:
    if f is not None and (f.overrides or not 2 <= f.replicas <= form.MOST_REPLICAS):
        return None  # the left column has no control for single replicas' settings, and a single replica is no fleet there
    return navigation.fleet_values(f)


def _fleet_changes(a: FleetSettings | None, b: FleetSettings | None) -> str | None:
    """What B's text says of the fleet; ``None`` if that cannot be said there."""
    if a is None or b is None:
        return "" if a is b else None
    mine, own = fleet_sides.values(a), {fleet_sides.OWN + name for name in b.router_settings}
    told = {}
    for name, value in fleet_sides.values(b).items():
        another = name.startswith(fleet_sides.OWN) and a.router != b.router  # which begins at its own defaults
        if (name in own) if another else (mine.get(name) != value):
            told[name] = value
    return write_text(told) if fleet_sides.derived(a, told) == b else None
