"""What a conformance check says about one recorded run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where replay and recording part."""

    run: str
    step: int | None
    field: str
    expected: Any
    got: Any

    def sentence(self) -> str:
        """One line for people."""
        where = f"step {self.step}, " if self.step is not None else ""
        return f"{where}{self.field}: recorded {_short(self.expected)}, replayed {_short(self.got)}"


@dataclass(frozen=True, slots=True)
class RunResult:
    """One recorded run: exact, or the first difference. ``compared`` counts compared fields.

    ``reported``: the recording leaves room for timing, so it is not judged; ``note`` and ``details`` say how far it is off.
    """

    name: str
    exact: bool
    compared: int
    first_difference: Difference | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    reported: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Comparison:
    """Collects field comparisons; ``difference`` is the first that failed."""

    def __init__(self, run: str) -> None:
        self.run, self.compared = run, 0
        self.difference: Difference | None = None

    def equal(self, step: int | None, name: str, expected: Any, got: Any) -> bool:
        """Compare one field; after a difference everything else is ignored."""
        self.compared += 1
        if expected == got:
            return True
        if self.difference is None:
            self.difference = Difference(self.run, step, name, expected, got)
        return False

    def result(self, note: str = "", **details: Any) -> RunResult:
        """The verdict so far."""
        return RunResult(self.run, self.difference is None, self.compared, self.difference, note, details)


def _short(value: Any, most: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
