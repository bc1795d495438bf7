"""The headline of a fleet: what routing did to the hit rate, and to the balance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simkv.diagnosis.ladder import Ladder
from simkv.ui import text

EVEN, HOT = 1.15, 1.5
"""The busiest replica computes so many times the mean: up to the first is even, from the second on a hot spot."""
WORTH_SAYING = 0.01
NEARLY_ALL = 0.05


@dataclass(frozen=True, slots=True)
class Story:
    """What the headline is made from.

    Args:
        replicas, router: of the fleet.
        ladder: what was shared, routed, delivered.
        busiest, above: the busiest replica and how many times the mean it computes.
        sent_again: requests that were sent more than once because a replica died; ``given_up`` of them for good.
        status: as of the run; ``finished`` of ``requests`` finished; ``end_s`` simulated end.
        caching: whether prefix caching was on.
    """

    replicas: int
    router: str
    ladder: Ladder
    busiest: int
    above: float
    sent_again: int = 0
    given_up: int = 0
    status: str = "complete"
    finished: int = 0
    requests: int = 0
    end_s: float = math.nan
    caching: bool = True


def verdict(s: Story) -> str:
    """A sentence on the hit rate, one on the balance, and what else must be known."""
    return " ".join(part for part in (_partial(s), _hits(s), _balance(s), _again(s)) if part)


def _partial(s: Story) -> str:
    if s.status == "complete":
        return ""
    how = {"partial": f"Partial result, stopped at {text.clock(s.end_s)}", "stalled": "An engine stalled", "crashed": "An engine died"}[
        s.status
    ]
    return f"{how} with {s.finished:,} of {text.counted(s.requests, 'request')} finished."


def _hits(s: Story) -> str:
    x = s.ladder
    who = f"{s.replicas} replicas behind {s.router}"
    if not x.queries:
        return f"No request was admitted by the {who}."
    if not s.caching:
        return f"Prefix caching is off on the {who}; one endless cache would find {text.percent(x.rate(x.ceiling))} of prompt tokens."
    if not x.has_content:
        return f"This trace has lengths but no content, so no prompt can hit: the {who} are judged for load and waiting only."
    found, best = text.percent(x.rate(x.delivered)), text.percent(x.rate(x.ceiling))
    if x.rate(x.ceiling) < WORTH_SAYING:
        return f"{who} find {found} of prompt tokens cached: these prompts share next to nothing, so routing cannot matter for hits."
    losses = {
        "is lost between replicas": x.ceiling - x.routed,
        "is lost to restarts": x.routed - x.kept,
        "is lost on the replicas, to capacity and timing": x.kept - x.delivered,
    }
    where, most = max(losses.items(), key=lambda item: item[1])
    if x.ceiling - x.delivered < NEARLY_ALL * x.ceiling:
        return f"{who} find {found} of prompt tokens cached, nearly all that one endless cache would ({best})."
    part = text.percent(most / x.ceiling, 0)
    return f"{who} find {found} of prompt tokens cached where one endless cache would find {best}: {part} of the reuse {where}."


def _balance(s: Story) -> str:
    if not math.isfinite(s.above) or s.replicas < 2:
        return ""
    if s.above <= EVEN:
        return "Load is even."
    if s.above < HOT:
        return f"Replica {s.busiest} computes {s.above:.1f}× the mean."
    return f"Replica {s.busiest} is a hot spot: it computes {s.above:.1f}× the mean."


def _again(s: Story) -> str:
    if not s.sent_again:
        return ""
    given_up = f", {s.given_up:,} given up" if s.given_up else ", none lost"
    return f"{text.counted(s.sent_again, 'request was', 'requests were')} sent again after a replica died{given_up}."
