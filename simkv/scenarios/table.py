"""A table of a scenario's file, taken apart key by key: what is missing, wrong or left over ends in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from simkv.errors import InputError

LONGEST = 2000
"""Characters of any text."""


class Table:
    """One table of the file.

    Args:
        file: the file's name, for errors.
        where: the table's place in the file; empty for the file itself.
        values: what TOML read.
    """

    def __init__(self, file: str, where: str, values: Mapping[str, Any]) -> None:
        self.file, self.where, self.values = file, where, values
        self._asked: set[str] = set()

    def text(self, key: str, default: str | None = None, *, choices: Sequence[str] = (), longest: int = LONGEST) -> str:
        """A text, without line breaks; required if there is no default."""
        value = self._take(key, default, "a text")
        allowed = "one of " + ", ".join(choices) if choices else f"a text of 1 to {longest:,} characters"
        if not isinstance(value, str) or not value.strip() or len(value) > longest or (choices and value not in choices):
            raise self.wrong(key, value, allowed)
        words = " ".join(value.split())
        if not words.isprintable():
            raise self.wrong(key, value, "printable characters")
        return words

    def maybe_text(self, key: str, *, choices: Sequence[str] = ()) -> str | None:
        """The same where it may be absent."""
        self._asked.add(key)
        return self.text(key, choices=choices) if key in self.values else None

    def number(self, key: str, default: float | None = None, *, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A number in a range; the default where it is absent."""
        if key not in self.values:
            self._asked.add(key)
            return default
        return self._number(key, self._take(key, None, "a number"), low, high)

    def whole(self, key: str, default: int | None = None, *, low: int, high: int) -> int | None:
        """A whole number in a range; the default where it is absent."""
        if key not in self.values:
            self._asked.add(key)
            return default
        value = self._take(key, None, "a whole number")
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, value, f"a whole number from {low:,} to {high:,}")
        return value

    def pair(self, key: str) -> tuple[float, float] | None:
        """Two numbers, the smaller first; ``None`` where they are absent."""
        self._asked.add(key)
        if key not in self.values:
            return None
        value = self._take(key, None, "two numbers")
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(key, value, "two numbers, [low, high]")
        low, high = (self._number(key, v, -math.inf, math.inf) for v in value)
        if low > high:
            raise self.wrong(key, value, "two numbers, the smaller first")
        return low, high

    def texts(self, key: str, default: Sequence[str], *, choices: Sequence[str]) -> tuple[str, ...]:
        """A list of different texts."""
        value = self._take(key, list(default), "a list of texts")
        if not isinstance(value, list) or not value or any(v not in choices for v in value) or len(set(value)) < len(value):
            raise self.wrong(key, value, "a list of different names out of " + ", ".join(choices))
        return tuple(value)

    def table(self, key: str) -> Table:
        """A table inside; empty where it is absent."""
        value = self._take(key, {}, "a table")
        if not isinstance(value, dict):
            raise self.wrong(key, value, "a table")
        return Table(self.file, self.place(key), value)

    def tables(self, key: str, most: int) -> list[Table]:
        """An array of at least one table."""
        value = self._take(key, None, f"1 to {most} tables [[{key}]]")
        if not isinstance(value, list) or not 1 <= len(value) <= most or any(not isinstance(v, dict) for v in value):
            raise self.wrong(key, value, f"1 to {most} tables [[{key}]]")
        return [Table(self.file, f"{self.place(key)}[{i + 1}]", v) for i, v in enumerate(value)]

    def plain(self) -> dict[str, Any]:
        """Everything in it, for somebody else to check."""
        self._asked |= self.values.keys()
        return dict(self.values)

    def asked(self, *keys: str) -> None:
        """Take note of keys that are looked at otherwise."""
        self._asked.update(keys)

    def done(self) -> None:
        """Refuse keys nobody has asked for. Raises InputError."""
        for key in self.values:
            if key not in self._asked:
                raise InputError(
                    f"there is no such key here (value {_short(self.values[key])})",
                    file=self.file,
                    field=self.place(key),
                    expected="one of " + ", ".join(sorted(self._asked)),
                )

    def place(self, key: str) -> str:
        """A key with the tables around it."""
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, value: object, allowed: str) -> InputError:
        """The error for a value."""
        return InputError(f"the value is {_short(value)}", file=self.file, field=self.place(key), expected=allowed)

    def _take(self, key: str, default: Any, kind: str) -> Any:
        self._asked.add(key)
        if key in self.values:
            return self.values[key]
        if default is None:
            raise InputError("it is missing", file=self.file, field=self.place(key), expected=kind)
        return default

    def _number(self, key: str, value: Any, low: float, high: float) -> float:
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
        if not ok:
            limits = f" from {low:g} to {high:g}" if math.isfinite(low) and math.isfinite(high) else ""
            raise self.wrong(key, value, f"a number{limits}")
        return float(value)


def _short(value: object, longest: int = 80) -> str:
    said = " ".join(repr(value).split())
    return said if len(said) <= longest else said[: longest - 1] + "…"
