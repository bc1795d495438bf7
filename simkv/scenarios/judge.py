"""Expectations held against what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simkv.comparison import words
from simkv.scenarios.figures import FIGURES
from simkv.scenarios.outcome import Outcome
from simkv.scenarios.scenario import Expected, Figure, Scenario
from simkv.text import percent

PASSED, FAILED, UNKNOWN = "holds", "does not hold", "not known"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expectation and what came out.

    Args:
        value, other: the figures; ``None`` is no data.
        outcome: PASSED, FAILED, or UNKNOWN where a figure is missing: its variant was not replayed to the end, or has no such data.
    """

    expected: Expected
    value: float | None
    other: float | None
    outcome: str

    @property
    def found(self) -> str:
        """What came out, in words: ``Hit rate 41.2 % (as found) against 90.1 % (room for all); expected 30 points below``."""
        e = self.expected
        said = f"{FIGURES[e.figure.figure].title} {self._shown(self.value)} ({_of(e.figure)})"
        if e.other is not None:
            title = "" if e.other.figure == e.figure.figure else f"{FIGURES[e.other.figure].title} "
            said += f" against {title}{self._shown(self.other)} ({_of(e.other, e.figure)})"
        return f"{said}; {self.asked}" + (f"; {self.claim}" if e.claimed else "")

    @property
    def asked(self) -> str:
        """What was expected, in words."""
        e = self.expected
        if e.other is None:
            if e.low == e.high:
                return f"expected {self._shown(e.low)}"
            if e.low is None or e.high is None:
                return f"expected at most {self._shown(e.high)}" if e.low is None else f"expected at least {self._shown(e.low)}"
            return f"expected {self._shown(e.low)} to {self._shown(e.high)}"
        factor = f" {e.times:g} times that" if e.times != 1 else ""
        share = FIGURES[e.figure.figure].unit == "share"
        more = (f" {e.by * 100:g} points" if share else f" {self._shown(e.by)}") if e.by else ""
        way = "below" if e.below else "above"
        return f"expected{more} {way}{factor}" if more or factor else f"expected {way} it"

    @property
    def claim(self) -> str:
        """How what came out lies to what is claimed; empty without a claim."""
        e = self.expected
        if e.claimed is None:
            return ""
        low, high = e.claimed
        said = f"claimed elsewhere {self._shown(low)} to {self._shown(high)}"
        if self.value is None:
            return said
        place = "inside" if low <= self.value <= high else "below" if self.value < low else "above"
        return f"{said}: {place}"

    def _shown(self, value: float | None) -> str:
        metric = FIGURES[self.expected.figure.figure]
        if metric.unit == "share" and value is not None:
            return percent(value)
        return words.value(metric, value)


def judge(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Every expectation in order. Variants that are not among the outcomes, or are not complete, are not known.

    Raises:
        InputError: an expectation about requests that a run does not have.
    """
    known = {o.variant.name: o for o in outcomes}
    return [_verdict(e, known) for e in scenario.expected]


def _verdict(e: Expected, known: Mapping[str, Outcome]) -> Verdict:
    value = _value(e.figure, known)
    other = _value(e.other, known) if e.other is not None else None
    if value is None or (e.other is not None and other is None):
        return Verdict(e, value, other, UNKNOWN)
    if e.other is None:
        holds = (e.low is None or value >= e.low) and (e.high is None or value <= e.high)
    else:
        assert other is not None
        holds = value <= other * e.times - e.by if e.below else value >= other * e.times + e.by
    return Verdict(e, value, other, PASSED if holds else FAILED)


def _value(f: Figure, known: Mapping[str, Outcome]) -> float | None:
    outcome = known.get(f.variant)
    return outcome.figure(f.figure, f.where) if outcome is not None and outcome.status != "partial" else None


def _of(f: Figure, beside: Figure | None = None) -> str:
    """Whose figure it is and of which requests; the variant only if it is not the same as beside it."""
    if beside is not None and beside.variant == f.variant:
        return f.where.words or "all requests"
    return f"{f.variant}; {f.where.words}" if f.where.words else f.variant
