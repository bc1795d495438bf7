"""From what a scenario says of its traffic to the requests."""

from __future__ import annotations

from dataclasses import replace

from simkv.errors import InputError
from simkv.scenarios.scenario import Traffic, Variant
from simkv.workload.bundled import bundled
from simkv.workload.generators import generate
from simkv.workload.registry import read_workload
from simkv.workload.transform import limit, stretch, with_salts
from simkv.workload.workload import Workload


def requests_of(traffic: Traffic) -> Workload:
    """The requests, the same every time. Raises SimkvError: a trace that is not installed, salts for nobody."""
    if traffic.kind == "generator":
        made = generate(traffic.name, seed=traffic.seed, **traffic.params)
        made = made if traffic.limit is None or traffic.limit >= len(made) else limit(made, traffic.limit)
    else:
        there = bundled()
        if traffic.name not in there:
            raise InputError("this trace is not installed", file=traffic.name, expected="one of " + ", ".join(there))
        made = replace(read_workload(there[traffic.name], limit=traffic.limit), name=traffic.name)
    salted = with_salts(made, traffic.salts)
    return salted if traffic.speed == 1.0 else stretch(salted, 1 / traffic.speed)


def recorded(variant: Variant) -> Workload:
    """The requests of a variant with its settings as recorded ones, so that they hold wherever the user names no others."""
    settings = variant.settings
    return replace(requests_of(variant.traffic), engine={"engine": settings.engine, **settings.changed()})
