"""What a generator can be told: named parameters with defaults, ranges and a sentence each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkv.errors import SettingsError

if TYPE_CHECKING:
    from simkv.workload.generators.draws import Draws
    from simkv.workload.workload import Workload

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter.

    Args:
        default: also says the type: int, float or str.
        help: what it is, with its unit.
        low, high: the range of a number, both included.
        choices: the values of a text.
    """

    name: str
    default: int | float | str
    help: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The accepted values in words."""
        if self.choices:
            return ", ".join(self.choices)
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind} from {self.low:,} to {self.high:,}"

    def check(self, value: Any) -> int | float | str:
        """``value`` in the parameter's type. Raises ``SettingsError`` outside the range."""
        if self.choices:
            text = "off" if value is False else str(value).replace("_", " ").replace("-", " ")
            for choice in (text, f"per {text}"):  # tenant is per tenant, as in ``transform.salt_mode``
                if choice in self.choices:
                    return choice
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and self.low <= value <= self.high:
            if isinstance(self.default, float):
                return float(value)
            if value == int(value):
                return int(value)
        raise SettingsError(self.name, value, self.allowed, self.help)


@dataclass(frozen=True, slots=True)
class Generator:
    """A kind of traffic.

    Args:
        name: as used in ``generate`` and on the command line.
        title: for a menu.
        story: one or two sentences: who sends this, and what a prefix cache can make of it.
        params: its parameters, the common ones last.
        make: the function behind ``generate``.
    """

    name: str
    title: str
    story: str
    params: tuple[Param, ...]
    make: Callable[[Draws, Values], Workload]

    def values(self, given: Values) -> dict[str, Any]:
        """Defaults with ``given`` over them, checked. Raises ``SettingsError`` for an unknown name or a bad value."""
        known = {p.name: p for p in self.params}
        for name in given:
            if name not in known:
                raise SettingsError(name, given[name], f"a parameter of {self.name}: {', '.join(known)}")
        return {p.name: p.check(given.get(p.name, p.default)) for p in self.params}


REQUESTS = Param("requests", 2000, "how many requests", 1, 2_000_000)
LENGTH_CV = Param("length_cv", 0.6, "spread of lengths (standard deviation / mean of a lognormal; 0 = all equal; cut at 20 x mean)", 0, 3)
TENANTS = Param("tenants", 4, "how many tenants the users belong to", 1, 100_000)
SALTS = Param("salts", "off", "cache_salt of the requests", choices=("off", "per tenant", "per session"))


def arriving(rate: float = 5.0, users: int = 64, think: Param | None = None) -> tuple[Param, ...]:
    """The parameters of ``arrivals``, with the defaults that suit a generator."""
    return (
        Param(
            "arrivals",
            "poisson",
            "poisson, gamma (bursty: cv above 1), diurnal (poisson whose rate swings), closed loop (each user waits for the answer)",
            choices=("poisson", "gamma", "diurnal", "closed loop"),
        ),
        Param("rate", rate, "requests per second, on average (not with closed loop)", 1e-3, 1e5),
        Param("cv", 3.0, "gamma: standard deviation / mean of the time between requests (1 = poisson)", 0.05, 20),
        Param("period_s", 3600.0, "diurnal: seconds of one day", 1, 1e7),
        Param("swing", 0.8, "diurnal: how far the rate swings around its mean (1 = down to nothing)", 0, 1),
        Param("users", users, "how many users send these requests (closed loop: so many at once)", 1, 1_000_000),
        think or Param("think_s", 5.0, "closed loop: mean seconds between an answer and the next request of the same user", 0, 1e6),
    )
