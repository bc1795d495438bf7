"""Read a scenario's file. It holds plain values: nothing in it is run, opened or imported.

Every error names the file, the key, the value and what is allowed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simkv.comparison.choices import derived
from simkv.errors import InputError, SimkvError
from simkv.fleet.routing.registry import policy_class
from simkv.scenarios.figures import FIGURES, OF_A_PART
from simkv.scenarios.scenario import PARTS, TURNS, Expected, Figure, Scenario, Traffic, Variant, Where, plain
from simkv.scenarios.table import Table
from simkv.settings import Settings, settings_from
from simkv.settings.fleet import FleetSettings
from simkv.workload.bundled import bundled
from simkv.workload.generators import find_generator, generators
from simkv.workload.transform import SALT_MODES, salt_mode

MOST_BYTES = 200_000
MOST_VARIANTS, MOST_EXPECTED = 8, 30
GROUPS = ("The prompt", "Memory", "The engine", "Other traffic", "Several replicas")
"""Headings of the gallery, in order."""
SHOWN = ("hit_rate", "prefill_tokens", "evicted_tokens", "preemptions", "ttft_p50_s", "ttft_p95_s", "output_tokens_per_s")
"""The figures of a scenario's table if it names none."""


def read_scenario(path: Path) -> Scenario:
    """A scenario from its file.

    Raises:
        InputError: the file cannot be read, or a key is missing, unknown or wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"it cannot be read ({problem.strerror})", file=path.name) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"it has {len(data):,} bytes", file=path.name, expected=f"at most {MOST_BYTES:,}")
    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"it is no TOML: {problem}", file=path.name) from None
    return scenario_from(values, path.stem, path.name)


def scenario_from(values: Mapping[str, Any], name: str, file: str) -> Scenario:
    """The same from plain values. Raises InputError."""
    top = Table(file, "", values)
    title, story, shows = top.text("title", longest=80), top.text("story"), top.text("shows", longest=300)
    group = top.text("group", choices=GROUPS)
    shown = top.texts("figures", SHOWN, choices=tuple(FIGURES))
    given = top.table("settings").plain()
    base = _settings(file, "settings", given)
    common = top.table("traffic").plain()
    fleet = top.table("fleet").plain()
    variants = tuple(_variant(t, base, common, fleet) for t in top.tables("variants", MOST_VARIANTS))
    names = [plain(v.name) for v in variants]
    for i, v in enumerate(variants):
        if names.index(names[i]) < i:
            raise InputError(
                f"the value is {v.name!r}", file=file, field=f"variants[{i + 1}].name", expected="a name that no other variant has"
            )
    expected = tuple(_expected(t, variants) for t in top.tables("expected", MOST_EXPECTED))
    top.done()
    return Scenario(name, title, story, shows, group, shown, variants, expected)


def _variant(t: Table, base: Settings, common: dict[str, Any], fleet: dict[str, Any]) -> Variant:
    name, about = t.text("name", longest=40), t.text("about", longest=300)
    changes, own = t.table("settings"), t.table("fleet").plain()
    settings, where = base, t.place("settings")
    if changes.values:
        try:
            settings, _ = derived(base, changes.plain())
        except SimkvError as problem:
            raise InputError(str(problem).rstrip("."), file=t.file, field=where) from None
    mine = t.table("traffic").plain()
    merged = {**common, **mine, "params": {**_params(t.file, "traffic", common), **_params(t.file, t.place("traffic"), mine)}}
    if {"generator", "trace"} & mine.keys():
        merged = {**{k: v for k, v in common.items() if k not in ("generator", "trace", "params")}, **mine}
    traffic = _traffic(Table(t.file, t.place("traffic") if mine else "traffic", merged))
    t.done()
    both = {**fleet, **own}
    return Variant(name, about, traffic, settings, _fleet(t.file, t.place("fleet"), both) if both else None, changes.plain())


def _settings(file: str, where: str, values: dict[str, Any]) -> Settings:
    try:
        return settings_from(values)
    except SimkvError as problem:
        raise InputError(str(problem).rstrip("."), file=file, field=where) from None


def _fleet(file: str, where: str, values: dict[str, Any]) -> FleetSettings:
    try:
        made = FleetSettings.from_mapping(values)
        policy_class(made.router).Settings.from_mapping(made.router_settings)
    except SimkvError as problem:
        raise InputError(str(problem).rstrip("."), file=file, field=where) from None
    return made


def _params(file: str, where: str, traffic: dict[str, Any]) -> dict[str, Any]:
    given = traffic.get("params", {})
    if not isinstance(given, dict):
        raise InputError(f"the value is {given!r}", file=file, field=f"{where}.params", expected="a table")
    return given


def _traffic(t: Table) -> Traffic:
    generator = t.maybe_text("generator", choices=[g.name for g in generators()])
    trace = t.maybe_text("trace", choices=list(bundled()))
    if (generator is None) == (trace is None):
        raise InputError(
            "it names " + ("both" if generator else "neither"), file=t.file, field=t.where, expected="either generator or trace"
        )
    params = t.table("params").plain()
    if generator is not None:
        try:
            find_generator(generator).values(params)
        except SimkvError as problem:
            raise InputError(str(problem).rstrip("."), file=t.file, field=t.place("params")) from None
    elif params:
        raise InputError(f"the value is {params!r}", file=t.file, field=t.place("params"), expected="nothing: a trace has no parameters")
    seed = t.whole("seed", 0, low=0, high=2**31 - 1)
    limit = t.whole("limit", low=1, high=1_000_000)
    salts = salt_mode(t.text("salts", "keep", choices=(*SALT_MODES, "per-tenant", "per-session")))
    speed = t.number("speed", 1.0, low=0.01, high=100.0)
    t.done()
    assert seed is not None
    assert speed is not None
    return Traffic("generator" if generator else "trace", generator or trace or "", params, seed, limit, salts, speed)


def _expected(t: Table, variants: tuple[Variant, ...]) -> Expected:
    says = t.text("says", longest=400)
    figure = _figure(t, variants, None)
    between, claimed = t.pair("between"), t.pair("claimed")
    bounds = {"equals": t.number("equals"), "at_least": t.number("at_least"), "at_most": t.number("at_most")}
    others = {name: t.table(name) for name in ("below", "above") if name in t.values}
    given = [k for k, v in bounds.items() if v is not None] + ["between"] * (between is not None) + list(others)
    if len(given) != 1:
        said = ", ".join(given) if given else "none"
        raise InputError(
            f"it has {said}", file=t.file, field=t.where, expected="exactly one of between, equals, at_least, at_most, below, above"
        )
    t.asked("below", "above")
    t.done()
    if not others:
        low = between[0] if between else bounds["equals"] if bounds["equals"] is not None else bounds["at_least"]
        high = between[1] if between else bounds["equals"] if bounds["equals"] is not None else bounds["at_most"]
        return Expected(says, figure, low, high, claimed=claimed)
    ((name, o),) = others.items()
    other = _figure(o, variants, figure)
    times, by = o.number("times", 1.0, low=0.0, high=1e6), o.number("by", 0.0, low=0.0, high=1e12)
    o.done()
    assert times is not None
    assert by is not None
    return Expected(says, figure, other=other, below=name == "below", times=times, by=by, claimed=claimed)


def _figure(t: Table, variants: tuple[Variant, ...], like: Figure | None) -> Figure:
    """The figure a table speaks of; what it does not say is as in ``like``, except for the part of the requests."""
    names = [v.name for v in variants]
    of = t.text("of", like.variant if like else names[0] if len(names) == 1 else None, choices=names)
    figure = t.text("figure", like.figure if like else None, choices=tuple(FIGURES))
    where = _where(t.table("where"))
    if not where.everywhere and figure not in OF_A_PART:
        raise t.wrong("where", t.values["where"], f"nothing: {figure} is known of the whole run only; of a part are {', '.join(OF_A_PART)}")
    return Figure(of, figure, where)


def _where(t: Table) -> Where:
    found = Where(
        part=t.maybe_text("part", choices=tuple(PARTS)),
        from_s=t.number("from_s", low=0, high=1e9),
        to_s=t.number("to_s", low=0, high=1e9),
        tenant=t.maybe_text("tenant"),
        turn=t.maybe_text("turn", choices=TURNS),
        replica=t.whole("replica", low=0, high=4095),
    )
    t.done()
    return found
