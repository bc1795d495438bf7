"""The addresses behind a scenario's buttons: Explore and Compare with exactly a variant's traffic, settings and fleet."""

from __future__ import annotations

from typing import Any

from simkv.scenarios import Traffic, Variant
from simkv.scenarios.address import changes_between
from simkv.settings.fleet import FleetSettings
from simkv.ui import navigation, sidebar, sources
from simkv.ui.config import SALTS, SPEEDS
from simkv.ui.fleet import form, operations
from simkv.workload.generators import find_generator

Address = dict[str, str]


def explore(variant: Variant) -> Address | None:
    """What Explore's address must say to show a variant; ``None`` if one of its settings has no control there."""
    traffic, engine = _traffic(variant.traffic), navigation.control_values(variant.settings)
    fleet: Address | None = {} if variant.fleet is None else _fleet(variant.fleet)
    if traffic is None or engine is None or fleet is None:
        return None
    return {**traffic, **engine, **fleet}


def compare(a: Variant, b: Variant) -> Address | None:
    """What Compare's address must say to hold ``b`` against ``a``; ``None`` where that is not one question: other requests,
    fleets, or a setting of ``a`` that has no control.
    """
    if a.traffic != b.traffic or a.fleet is not None or b.fleet is not None:
        return None
    first = explore(a)
    return None if first is None else {**first, "b": changes_between(a.settings, b.settings)}


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


def _fleet(f: FleetSettings) -> Address | None:
    if f.overrides or f.replicas > form.MOST_REPLICAS or f.replicas < 2:
        return None
    changed: dict[str, Any] = {k: v for k, v in f.changed().items() if k not in ("operations", "router_settings", "seed", "overrides")}
    out = {"replicas": str(f.replicas), "router": f.router, **{k: _text(v) for k, v in changed.items()}}
    out |= {f"router.{f.router}.{k}": _text(v) for k, v in f.router_settings.items()}
    if f.seed:
        out["router_seed"] = str(f.seed)
    if f.operations:
        out[operations.PARAMETER] = operations.write_text(f.operations)
    return out


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
