"""Figures (simkv/text.py) and tables for the terminal, where "no data" is a dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simkv import text

NO_DATA = "–"


def visible(written: str) -> str:
    """``written`` without what would steer a terminal: it quotes names and rows of files somebody else wrote."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in written)


def whole(value: float | None) -> str:
    """A whole number with thousands separators."""
    return text.count(value, NO_DATA)


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 1 in per cent."""
    return text.percent(value, digits, NO_DATA)


def seconds(value: float | None) -> str:
    """A duration in the unit that reads best."""
    return text.seconds(value, NO_DATA)


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Columns lined up with two spaces between them; figures to the right."""
    body = [[NO_DATA if text.missing(cell) else str(cell) for cell in row] for row in rows]
    lines = [list(head), *body] if head else body
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    numeric = [bool(body) and all(_is_figure(row[i]) for row in body) for i in range(len(lines[0]))]
    out = []
    for line in lines:
        cells = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(line, widths, numeric, strict=True)]
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)


def _is_figure(cell: str) -> bool:
    return cell == NO_DATA or cell.replace(",", "").replace(".", "").replace("-", "").removesuffix(" %").isdigit()
