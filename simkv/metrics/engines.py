"""A gauge that every engine of a data-parallel server exports for itself: what to make of several values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from simkv.errors import InputError

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class EngineGauge:
    """One gauge, engine by engine.

    Args:
        name: of the metric.
        values: engine label -> value, in the order of the text; engines without a number are left out.
    """

    name: str
    values: dict[str, float]

    @property
    def most(self) -> float:
        """The highest value: what an alert should look at, since the fullest engine preempts first."""
        return max(self.values.values())

    @property
    def mean(self) -> float:
        """Mean over the engines."""
        return math.fsum(self.values.values()) / len(self.values)

    @property
    def sentence(self) -> str:
        """For people."""
        fullest = max(self.values, key=lambda engine: self.values[engine])
        if len(self.values) == 1:
            return f"{self.name}: engine {fullest} at {self.most:.0%}.".replace("%", " %")
        return (
            f"{self.name}: {len(self.values)} engines, engine {fullest} at {self.most:.0%}, mean {self.mean:.0%}. Alert on the highest:"
            " one engine's value says nothing about the others."
        ).replace("%", " %")


def gauge_over_engines(exposition: str, name: str) -> EngineGauge | None:
    """Read one gauge of all engines from a server's ``/metrics``; ``None`` if it is not there.

    Args:
        exposition: text in Prometheus' format (0.0.4).
        name: the metric; a colon and an underscore in the exporter's name are one (prometheus_client 0.23 to 0.26 escape colons).

    Raises:
        InputError: a line of this metric cannot be read, or one engine stands there twice.
    """
    wanted, values = name.replace(":", "_"), dict[str, float]()
    for number, line in enumerate(exposition.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.replace(":", "_").lstrip().startswith(wanted):
            continue
        sample = _SAMPLE.match(line.strip())
        if sample is None:
            raise InputError("no sample of Prometheus' text format", file="metrics", line=number, expected='name{label="value"} number')
        if sample["name"].replace(":", "_") != wanted:
            continue
        labels = {m["name"]: m["value"] for m in _LABEL.finditer(sample["labels"] or "")}
        engine = labels.get("engine", "0")
        if engine in values:
            raise InputError(f"engine {engine} stands there twice", file="metrics", line=number, expected="one value an engine and model")
        try:
            value = float(sample["value"])
        except ValueError:
            raise InputError(f"{sample['value'][:40]} is no number", file="metrics", line=number, expected="a number") from None
        if math.isfinite(value):
            values[engine] = value
    return EngineGauge(name, values) if values else None
