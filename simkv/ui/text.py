"""Numbers and names as people read them. "No data" is never 0, and nothing from a trace is ever read as Markdown."""

from __future__ import annotations

import math
import re

NO_DATA = "no data"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~:$^&=@/])")


def plain(name: str, longest: int = 60) -> str:
    """An untrusted name for a Markdown text: every mark escaped, control characters gone, cut to ``longest``."""
    line = "".join(c if c.isprintable() else " " for c in name)
    short = line if len(line) <= longest else line[: longest - 1] + "…"
    return _MARKDOWN.sub(r"\\\1", short)


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return NO_DATA if value is None or not math.isfinite(value) else f"{round(value):,}"


def short_count(value: float) -> str:
    """``1,204``, ``65.5 k``, ``12.1 M``: for headlines."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{round(value):,}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 in per cent."""
    return NO_DATA if share is None or not math.isfinite(share) else f"{share * 100:.{digits}f} %"


def seconds(value: float | None) -> str:
    """A duration: ``840 ms``, ``1.84 s``, ``12.4 s``, ``3 min 20 s``, ``1 h 4 min``."""
    if value is None or not math.isfinite(value):
        return NO_DATA
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
    return f"{sign}{whole // 3600} h {whole % 3600 // 60} min"


def clock(value: float) -> str:
    """A moment of the simulated clock: ``h:mm:ss``."""
    whole = max(0, int(value)) if math.isfinite(value) else 0
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def memory(size: float) -> str:
    """Bytes in both units people use: ``58.5 GB (54.5 GiB)``."""
    if size < 1e9:
        return f"{size / 1e6:.1f} MB ({size / 2**20:.1f} MiB)"
    return f"{size / 1e9:.1f} GB ({size / 2**30:.1f} GiB)"


def key_hex(key: int) -> str:
    """A 64-bit block key as 16 hex digits in two groups."""
    text = f"{key & 0xFFFF_FFFF_FFFF_FFFF:016x}"
    return f"{text[:8]} {text[8:]}"


def some(names: list[str], most: int = 6) -> str:
    """``a, b, c and 4 more``."""
    head = ", ".join(names[:most])
    return head if len(names) <= most else f"{head} and {len(names) - most:,} more"
