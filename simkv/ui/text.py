"""Figures (simkv/text.py) and names for the page: nothing from a trace is ever read as Markdown."""

from __future__ import annotations

import re

from simkv.text import NO_DATA, clock, count, counted, memory, percent, seconds, short_count

__all__ = ["NO_DATA", "clock", "count", "counted", "key_hex", "memory", "percent", "plain", "seconds", "short_count", "some"]
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~:$^&=@/])")


def plain(name: str, longest: int = 60) -> str:
    """An untrusted name for a Markdown text: every mark escaped, control characters gone, cut to ``longest``."""
    line = "".join(c if c.isprintable() else " " for c in name)
    short = line if len(line) <= longest else line[: longest - 1] + "…"
    return _MARKDOWN.sub(r"\\\1", short)


def key_hex(key: int) -> str:
    """A 64-bit block key as 16 hex digits in two groups."""
    text = f"{key & 0xFFFF_FFFF_FFFF_FFFF:016x}"
    return f"{text[:8]} {text[8:]}"


def some(names: list[str], most: int = 6) -> str:
    """``a, b, c and 4 more``."""
    head = ", ".join(names[:most])
    return head if len(names) <= most else f"{head} and {len(names) - most:,} more"
