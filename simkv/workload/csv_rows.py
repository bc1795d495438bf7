"""CSV traces: a table of texts, turned into columns; every cell that cannot be used becomes one exact error."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.workload.rows import MAX_TIME_S, Odd, Tally, Where, number_column, whole_column
from simkv.workload.source import Source
from simkv.workload.workload import F8, I8

WHOLE = re.compile(r"[0-9]{1,18}(\.0*)?")
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|\.[0-9]+")


@dataclass(slots=True)
class Table:
    """Columns of texts by their (lower-case) names, the line of each row, and what was wrong so far."""

    name: str
    columns: dict[str, list[str]]
    titles: dict[str, str]
    lines: Sequence[int]
    errors: list[tuple[int, InputError]]

    def column(self, name: str, fast: Callable[[list[str]], Any], slow: Callable[[str, str, Where], float]) -> Any:
        """A column through ``fast`` at once; if that raises, cell by cell through ``slow(text, title, where)`` (0 where wrong)."""
        texts = self.columns[name]
        try:
            return fast(texts)
        except (Odd, ValueError, OverflowError):
            values: list[float] = []
            for row, text in enumerate(texts):
                try:
                    values.append(slow(text, self.titles[name], Where(self.name, self.lines[row])))
                except InputError as e:
                    self.errors.append((row, e))
                    values.append(0)
            return np.array(values)

    def where(self, row: int) -> Where:
        """The place of a row, for errors."""
        return Where(self.name, self.lines[row])

    def whole(self, name: str, low: int = 0) -> I8:
        """A column of whole numbers of at least ``low``."""

        def fast(texts: list[str]) -> I8:
            if not _plain(texts):
                raise Odd
            return whole_column(list(map(int, texts)), low=low)

        def slow(text: str, title: str, where: Where) -> int:
            text = text.strip()
            return where.whole({title: _as_number(text)}, title, low=low)

        out: I8 = self.column(name, fast, slow).astype(np.int64)
        return out

    def number(self, name: str, high: float = MAX_TIME_S) -> F8:
        """A column of numbers of at least 0."""

        def fast(texts: list[str]) -> F8:
            if not _plain(texts):
                raise Odd
            return number_column(list(map(float, texts)), high=high)

        def slow(text: str, title: str, where: Where) -> float:
            return where.number({title: _as_number(text.strip())}, title, high=high)

        out: F8 = self.column(name, fast, slow).astype(np.float64)
        return out

    def keep(self, tally: Tally) -> npt.NDArray[np.int64]:
        """The rows without an error; errors go to the tally in order of the file, the first of each row."""
        bad: set[int] = set()
        for row, error in sorted(self.errors, key=lambda e: e[0]):
            if row not in bad:
                bad.add(row)
                tally.bad(error)
        good = np.ones(len(self.lines), bool)
        good[list(bad)] = False
        tally.needs_rows(int(good.sum()))
        return np.flatnonzero(good)


def read_table(source: Source, tally: Tally, needed: Sequence[str], title: str) -> Table:
    """The file's header and columns. Raises InputError for a missing column; rows of a wrong length go to the tally.

    Args:
        needed: names of the columns that must be there, lower case.
        title: what the file should be, for errors.
    """
    clean = source.text.replace("\r\n", "\n").replace("\r", "\n")
    text = clean.strip("\n \t")
    head, _, body = text.partition("\n")
    titles = {t.strip().lower(): t.strip() for t in _header(head, source.name)}
    for column in needed:
        if column not in titles:
            found = ", ".join(titles)[:120]
            raise InputError(f"the column is missing; the header has {found}", file=source.name, line=1, field=column, expected=title)
    if not body:
        raise InputError("no rows after the header", file=source.name, expected="at least one request")
    names = list(titles)
    first_line = clean[: clean.index(head)].count("\n") + 2
    cells = _cells(body, len(names))
    lines: Sequence[int]
    if cells is not None:
        columns = {name: cells[k :: len(names)] for k, name in enumerate(names)}
        lines = range(first_line, first_line + len(columns[names[0]]))
    else:
        rows, lines = _rows(body, len(names), first_line, tally)
        columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    tally.rows = len(lines) + tally.dropped
    return Table(source.name, columns, titles, lines, [])


def _header(line: str, name: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as e:
        raise InputError(f"not CSV: {e}", file=name, line=1, expected="a header of comma-separated names") from None


def _cells(body: str, width: int) -> list[str] | None:
    """All cells in one split, if every line has ``width`` of them and nothing is quoted."""
    if '"' in body or not body.isascii():
        return None
    raw = np.frombuffer(body.encode() + b"\n", np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    commas = np.searchsorted(np.flatnonzero(raw == ord(",")), ends)
    if (np.diff(commas, prepend=0) != width - 1).any():
        return None
    return body.replace("\n", ",").split(",")


def _rows(body: str, width: int, first_line: int, tally: Tally) -> tuple[list[list[str]], list[int]]:
    rows, lines = [], []
    reader = csv.reader(body.split("\n"))
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as e:
            raise InputError(
                f"not CSV: {e}", file=tally.name, line=first_line + reader.line_num - 1, expected="comma-separated values"
            ) from None
        line = first_line + reader.line_num - 1
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != width:
            tally.bad(InputError(f"{len(row)} values", file=tally.name, line=line, expected=f"{width}, as in the header"))
            continue
        rows.append(row)
        lines.append(line)
    tally.needs_rows(len(rows))
    return rows, lines


def _plain(texts: list[str]) -> bool:
    """Whether Python's number parsing means the same as ours: it also takes 1_000, nan and other digits."""
    joined = "".join(texts)
    return joined.isascii() and "_" not in joined


def _as_number(text: str) -> Any:
    """The number a text writes, else the text itself, for the error that follows."""
    if WHOLE.fullmatch(text.removeprefix("-")):
        return int(text.partition(".")[0])
    if NUMBER.fullmatch(text.removeprefix("-")):
        value = float(text)
        return value if math.isfinite(value) else text
    return text
