"""How figures are written for people. "No data" is a dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NO_DATA = "–"


def visible(text: str) -> str:
    """``text`` without what would steer a terminal: it quotes names and rows of files somebody else wrote."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def missing(value: object) -> bool:
    """Whether there is nothing to show."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def whole(value: float | None) -> str:
    """``12031`` as ``12,031``."""
    return NO_DATA if missing(value) or value is None else f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """``0.1876`` as ``18.8 %``."""
    return NO_DATA if missing(value) or value is None else f"{100 * value:.{digits}f} %"


def seconds(value: float | None) -> str:
    """A duration in the unit that reads best: ``8.4 ms``, ``2.06 s``, ``17 min 43 s``, ``1 h 34 min``."""
    if missing(value) or value is None:
        return NO_DATA
    if value < 1:
        return f"{value * 1000:.3g} ms" if value else "0 s"
    if value < 120:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Columns lined up with two spaces between them; figures to the right."""
    body = [[NO_DATA if missing(cell) else str(cell) for cell in row] for row in rows]
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


def _is_figure(text: str) -> bool:
    return text == NO_DATA or text.replace(",", "").replace(".", "").replace("-", "").removesuffix(" %").isdigit()
