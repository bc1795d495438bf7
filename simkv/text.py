"""Figures as people read them, the same on the page and in the terminal. "No data" is never 0."""

from __future__ import annotations

import math

NO_DATA = "no data"


def missing(value: object) -> bool:
    """Whether there is nothing to show."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def count(value: float | None, none: str = NO_DATA) -> str:
    """``12031`` as ``12,031``."""
    return none if value is None or missing(value) else f"{round(value):,}"


def counted(value: int, one: str, many: str = "") -> str:
    """``1 request``, ``12,031 requests``; ``many`` where an s does not make the plural."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def short_count(value: float) -> str:
    """``1,204``, ``65.5 k``, ``12.1 M``: for headlines."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{round(value):,}"


def percent(share: float | None, digits: int = 1, none: str = NO_DATA) -> str:
    """``0.1876`` as ``18.8 %``."""
    return none if share is None or missing(share) else f"{share * 100:.{digits}f} %"


def seconds(value: float | None, none: str = NO_DATA) -> str:
    """A duration: ``840 ms``, ``1.84 s``, ``12.4 s``, ``3 min 20 s``, ``1 h 4 min``."""
    if value is None or missing(value):
        return none
    size = abs(value)
    if not size:
        return "0 s"
    if size < 0.9995:
        return f"{value * 1000:.3g} ms" if size >= 1e-3 else f"{value * 1e6:.3g} µs"
    if size < 59.5:
        return f"{value:.2f} s" if size < 10 and size != round(size) else f"{value:.1f} s" if size != round(size) else f"{value:.0f} s"
    whole = round(size)
    sign = "-" if value < 0 else ""
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60} s" if whole % 60 else f"{sign}{whole // 60} min"
    return f"{sign}{whole // 3600:,} h {whole % 3600 // 60} min"


def clock(value: float) -> str:
    """A moment of the simulated clock: ``h:mm:ss``."""
    whole = max(0, int(value)) if math.isfinite(value) else 0
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def memory(size: float) -> str:
    """Bytes in both units people use: ``58.5 GB (54.5 GiB)``."""
    if size < 1e9:
        return f"{size / 1e6:.1f} MB ({size / 2**20:.1f} MiB)"
    return f"{size / 1e9:.1f} GB ({size / 2**30:.1f} GiB)"
