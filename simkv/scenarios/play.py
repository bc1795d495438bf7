"""Replay a scenario: all its variants, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simkv.errors import SimkvError
from simkv.replay import Progress, replay
from simkv.scenarios.outcome import Outcome
from simkv.scenarios.scenario import Scenario, Variant
from simkv.scenarios.traffic import requests_of
from simkv.workload.workload import Workload


def play(
    scenario: Scenario,
    variants: Sequence[Variant] | None = None,
    *,
    events: bool = False,
    progress: Callable[[Variant, Progress], bool] | None = None,
) -> list[Outcome]:
    """What comes out of the variants (default: all), in order.

    Args:
        events: keep the event logs.
        progress: called several times a second with whose replay it is; returning False stops: variants that are finished
            by then are kept, the one under way is not.

    Raises:
        SimkvError: what an engine refuses, with the variant's name in front.
    """
    done: list[Outcome] = []
    made: list[tuple[Variant, Workload]] = []
    for variant in scenario.variants if variants is None else variants:
        report = None if progress is None else lambda p, v=variant: progress(v, p)
        try:
            workload = next((w for v, w in made if v.traffic == variant.traffic), None) or requests_of(variant.traffic)
            made.append((variant, workload))
            outcome = one(variant, workload, events=events, progress=report)
        except SimkvError as problem:
            raise SimkvError(f"{scenario.name}, {variant.name}: {problem}") from None
        if outcome.status == "partial":
            break
        done.append(outcome)
    return done


def one(variant: Variant, workload: Workload, *, events: bool = False, progress: Callable[[Progress], bool] | None = None) -> Outcome:
    """Replay one variant on requests that are at hand already. Raises SimkvError."""
    if variant.fleet is None:
        return Outcome(variant, replay(workload, variant.settings, events=events, progress=progress))
    from simkv.replay_fleet import replay_fleet

    return Outcome(variant, replay_fleet(workload, variant.settings, variant.fleet, events=events, progress=progress))
