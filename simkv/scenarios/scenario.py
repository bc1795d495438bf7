"""What a scenario is: plain values, checked when they are read (simkv/scenarios/load.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simkv.errors import InputError
from simkv.settings import Settings
from simkv.settings.fleet import FleetSettings

PARTS: dict[str, tuple[float, float]] = {
    "first third": (0.0, 1 / 3),
    "second third": (1 / 3, 2 / 3),
    "last third": (2 / 3, 1.0),
    "first half": (0.0, 1 / 2),
    "second half": (1 / 2, 1.0),
}
"""Shares of the requests in order of arrival, by the name a file gives them."""
TURNS = ("first", "later")
"""The first request of each tenant, or all but that."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which requests a figure is about; without any of these, all.

    Args:
        part: one of PARTS.
        from_s, to_s: those that arrived at or after, and before, so many seconds from the start.
        tenant: those of this tenant, by name.
        turn: one of TURNS.
        replica: those that this replica of a fleet served.
    """

    part: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    tenant: str | None = None
    turn: str | None = None
    replica: int | None = None

    @property
    def everywhere(self) -> bool:
        """Whether this is about all requests."""
        return self == Where()

    @property
    def words(self) -> str:
        """For people: ``last third, tenant text``; empty for all requests."""
        said = [self.part or ""]
        if self.from_s is not None or self.to_s is not None:
            said.append(f"{self.from_s or 0:g} to {self.to_s:g} s" if self.to_s is not None else f"from {self.from_s:g} s")
        said.append(f"tenant {self.tenant}" if self.tenant is not None else "")
        said.append({"first": "first of each tenant", "later": "all but the first of each tenant"}.get(self.turn or "", ""))
        said.append(f"replica {self.replica}" if self.replica is not None else "")
        return ", ".join(s for s in said if s)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Where the requests come from.

    Args:
        kind: ``generator`` or ``trace`` (a bundled one).
        name: of the generator or trace.
        params: the generator's parameters that are not at their defaults.
        seed: of the generator.
        limit: keep the first so many requests.
        salts: as in ``simkv.workload.transform.with_salts``.
        speed: how much faster than recorded they arrive.
    """

    kind: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    limit: int | None = None
    salts: str = "keep"
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One column: the same story told with other settings, other traffic or another fleet.

    Args:
        name: as the expectations call it.
        about: what is different, in a sentence.
        traffic, settings: complete.
        fleet: settings of the fleet, ``None`` for a single replica.
        changes: what it changes of the scenario's settings, as people write it.
    """

    name: str
    about: str
    traffic: Traffic
    settings: Settings
    fleet: FleetSettings | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one variant."""

    variant: str
    figure: str
    where: Where = Where()


@dataclass(frozen=True, slots=True)
class Expected:
    """A statement that can be checked: ``figure`` lies between ``low`` and ``high``, or below (above) another figure.

    Args:
        says: the mechanism, in a sentence.
        low, high: bounds, both included; ``None`` is no bound.
        other: the figure it is held against, ``times`` that and ``by`` more on the other side: below means
            ``figure <= other * times - by``, above ``figure >= other * times + by``.
        below: whether it has to be below ``other``; else above.
        claimed: what somebody claims it to be; only reported.
    """

    says: str
    figure: Figure
    low: float | None = None
    high: float | None = None
    other: Figure | None = None
    below: bool = True
    times: float = 1.0
    by: float = 0.0
    claimed: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that can be replayed.

    Args:
        name: the file's name without ``.toml``.
        title: a few words.
        story: what an engineer would say who has this on his hands.
        shows: what one learns, in a sentence.
        group: under which heading the gallery has it.
        figures: keys of the figures that its table shows, in order.
        variants: at least one.
        expected: at least one.
    """

    name: str
    title: str
    story: str
    shows: str
    group: str
    figures: tuple[str, ...]
    variants: tuple[Variant, ...]
    expected: tuple[Expected, ...]

    def variant(self, name: str) -> Variant:
        """A variant by name, capitals and hyphens aside. Raises InputError if there is none."""
        for v in self.variants:
            if plain(v.name) == plain(name):
                return v
        known = ", ".join(f'"{v.name}"' for v in self.variants)
        raise InputError(f"there is no variant {name}", file=self.name, field="VARIANT", expected=f"one of {known}")


def plain(name: str) -> str:
    """A name as it is compared: ``Round robin``, ``round-robin`` and ``round_robin`` are the same."""
    return " ".join("".join(c if c.isalnum() else " " for c in name.casefold()).split())
