"""Rows of a JSON-lines or CSV trace: parsed fast when all is well, row by row with exact errors when not.

A reader first takes every row at once and builds numpy columns; anything unexpected raises ``Odd``, and the same
rows then go through the reader's ``check`` one by one, which either names the first wrong field or, with
``skip_bad_rows``, counts what it leaves out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.source import Source, broken_json, gc_paused
from simkv.workload.workload import F8, I8, ReadReport

Row = dict[str, Any]
MAX_LENGTH = (1 << 31) - 1
"""Longest prompt or output: lengths are 32-bit."""
MAX_TIME_S = 1e12
FIRST_DROPPED = 5


class Odd(Exception):
    """A column is not what the format promises; the rows must be looked at one by one."""


@dataclass(slots=True)
class Tally:
    """Counts what a reader saw: every row is kept or stands in the report."""

    name: str
    skip: bool
    rows: int = 0
    dropped: int = 0
    first: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def bad(self, error: InputError, count: int = 1) -> None:
        """A row (or ``count`` that go with it) that cannot be used: stop, or count it if the user asked to skip."""
        if not self.skip:
            raise error
        self.drop(str(error), count)

    def drop(self, sentence: str, count: int = 1) -> None:
        """Leave ``count`` rows out and say why."""
        self.dropped += count
        if sentence and len(self.first) < FIRST_DROPPED:
            self.first.append(sentence)

    def report(self) -> ReadReport:
        return ReadReport(self.rows, self.dropped, tuple(self.first), tuple(self.notes))

    def needs_rows(self, kept: int) -> None:
        """Raise if nothing is left."""
        if kept == 0:
            why = f"all {self.rows} rows were dropped; the first: {self.first[0]}" if self.first else "no requests in the file"
            raise InputError(why, file=self.name, expected="at least one request")


PIECE = 4 << 20
"""Characters parsed at a time: Python's objects take ten times the room of their text."""


def read_columns(
    source: Source,
    tally: Tally,
    columns: Callable[[list[Row]], dict[str, Any]],
    verify: Callable[[dict[str, Any]], object],
    check: Callable[[Row, int], None],
    plain: Callable[[Row], Row],
) -> dict[str, Any]:
    """Columns of a JSON-lines file.

    Args:
        columns: arrays (or lists) of some rows, by name; raises Odd or KeyError if anything is unusual.
        verify: a look at the columns of the whole file; raises Odd likewise.
        check: raises InputError for a row (and its line) that cannot be used; called only if something was unusual.
        plain: a checked row as ``columns`` wants it (3.0 as 3).
    """
    parts = []
    with gc_paused():
        try:
            for piece in _pieces(source.text.strip()):
                if (rows := _parse(piece)) is None:
                    raise Odd
                parts.append(columns(rows))
                tally.rows += len(rows)
                del rows
            out = _concatenated(parts)
            verify(out)
        except (Odd, KeyError, TypeError, ValueError, AttributeError):
            rows, _ = checked_rows(source, tally, check)
            out = columns([plain(row) for row in rows])
            verify(out)
    return out


def _concatenated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return parts[0]
    return {
        name: np.concatenate([p[name] for p in parts])
        if isinstance(first, np.ndarray)
        else list(chain.from_iterable(p[name] for p in parts))
        for name, first in parts[0].items()
    }


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of whole lines."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + PIECE)
        end = len(text) if end < 0 else end
        yield text[begin:end]
        begin = end + 1


def _parse(piece: str) -> list[Row] | None:
    """Every line as an object, in one parse; ``None`` if any line is not simply one JSON object."""
    try:
        rows = json.loads(f"[{piece.replace(chr(10), ',')}]")
    except (ValueError, RecursionError):
        return None
    return rows if len(rows) == piece.count("\n") + 1 and set(map(type, rows)) == {dict} else None


def checked_rows(source: Source, tally: Tally, check: Callable[[Row, int], None]) -> tuple[list[Row], list[int]]:
    """Every usable row with its line. ``check(row, line)`` raises InputError for a row that is not."""
    rows, lines = [], []
    tally.rows = tally.dropped = 0
    tally.first.clear()
    for line, text in source.lines():
        tally.rows += 1
        try:
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as e:
                raise broken_json(e, text, source.name, line) from None
            if not isinstance(row, dict):
                raise InputError(f"found {kind(row)}", file=source.name, line=line, expected="a JSON object")
            check(row, line)
        except InputError as e:
            tally.bad(e)
            continue
        rows.append(row)
        lines.append(line)
    tally.needs_rows(len(rows))
    return rows, lines


def sample_rows(source: Source, most: int = 1000) -> list[Row]:
    """The first rows that are JSON objects, whatever stands between them."""
    out: list[Row] = []
    for _, text in source.lines():
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            out.append(row)
        if len(out) == most:
            break
    return out


def kind(value: Any) -> str:
    """What a JSON value is, in words, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f'the text "{value[:40]}"'
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    return str(value)[:40]


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a row, for errors."""

    file: str
    line: int | None

    def error(self, problem: str, field: str | None = None, expected: str | None = None, hint: str | None = None) -> InputError:
        return InputError(problem, file=self.file, line=self.line, field=field, expected=expected, hint=hint)

    def value(self, row: Mapping[str, Any], name: str, expected: str) -> Any:
        """``row[name]``, or an error that says it is missing."""
        if name not in row:
            raise self.error("the field is missing", name, expected)
        return row[name]

    def whole(self, row: Mapping[str, Any], name: str, low: int = 0, high: int = MAX_LENGTH) -> int:
        """A whole number in range (``3.0`` counts, ``true`` does not)."""
        expected = f"a whole number from {low} to {high}"
        value = self.value(row, name, expected)
        right = isinstance(value, (int, float)) and not isinstance(value, bool) and (isinstance(value, int) or value.is_integer())
        if not right or not low <= value <= high:
            raise self.error(f"the value is {kind(value)}", name, expected)
        return int(value)

    def number(self, row: Mapping[str, Any], name: str, low: float = 0.0, high: float = MAX_TIME_S) -> float:
        """A finite number in range."""
        expected = "a number of at least 0" if low == 0 else f"a number of at least {low}"
        value = self.value(row, name, expected)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.error(f"the value is {kind(value)}", name, expected)
        if not (isinstance(value, int) or math.isfinite(value)) or not low <= value <= high:
            raise self.error(f"the value is {kind(value)}", name, expected + f" and at most {high:g}")
        return float(value)

    def ids(self, row: Mapping[str, Any], name: str, expected: str = "a list of whole numbers of at least 0") -> list[int]:
        """A list of block ids."""
        value = self.value(row, name, expected)
        if not isinstance(value, list):
            raise self.error(f"the value is {kind(value)}", name, expected)
        right = not set(map(type, value)) - {int} and (not value or (min(value) >= 0 and max(value) < 1 << 63))
        for x in () if right else value:
            if not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < 1 << 63:
                raise self.error(f"one of the ids is {kind(x)}", name, expected)
        return value


def whole_column(values: Sequence[Any], low: int = 0, high: int = MAX_LENGTH) -> I8:
    """A column of whole numbers in range as int64. Raises Odd for anything else (booleans too)."""
    if set(map(type, values)) - {int}:
        raise Odd
    try:
        out = np.array(values, np.int64)
    except OverflowError:
        raise Odd from None
    if len(out) and not (low <= out.min() and out.max() <= high):
        raise Odd
    return out


def number_column(values: Sequence[Any], low: float = 0.0, high: float = MAX_TIME_S) -> F8:
    """A column of finite numbers in range as float64. Raises Odd for anything else."""
    if set(map(type, values)) - {int, float}:
        raise Odd
    try:
        out = np.array(values, np.float64)
    except OverflowError:
        raise Odd from None
    if len(out) and not (low <= out.min() and out.max() <= high):  # false for NaN too
        raise Odd
    return out


def id_lists(values: Sequence[Any], text_has_words: bool) -> tuple[I8, I8]:
    """Lists of block ids as ``(flat ids, length of each list)``. Raises Odd for anything that is not such a list.

    Args:
        values: one list a row.
        text_has_words: whether ``true`` or ``false`` stand anywhere in the file (numpy takes them for numbers).
    """
    if set(map(type, values)) - {list} or text_has_words:
        raise Odd
    counts = np.fromiter(map(len, values), np.int64, len(values))
    return flat_ids(chain.from_iterable(values), int(counts.sum())), counts


def flat_ids(values: Iterable[Any], count: int) -> I8:
    """``count`` block ids as int64, all of at least 0. Raises Odd otherwise."""
    if count == 0:
        return np.zeros(0, np.int64)
    flat = np.array(list(values))
    if flat.ndim != 1 or flat.dtype != np.int64 or flat.min() < 0:
        raise Odd
    return flat


def has_words(source: Source) -> bool:
    """Whether a JSON truth value may stand in the file."""
    return b"true" in source.data or b"false" in source.data
