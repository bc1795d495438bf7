"""The two bundled tables, read as text, and how a name in them is looked up."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping
from importlib.resources import files
from typing import TypeVar

from simkv.errors import SettingsError

T = TypeVar("T")

GB = 10**9
GIB = 2**30
MIB = 2**20


def rows(name: str) -> list[dict[str, str]]:
    """The rows of ``simkv/hardware/data/<name>.csv``."""
    text = files("simkv.hardware").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def find(field: str, name: str, table: Mapping[str, T], command: str) -> T:
    """The entry called ``name``, upper or lower case, with or without an ``owner/`` in front.

    Raises:
        SettingsError: no such entry; the message names the nearest ones.
    """
    short = _plain(name)
    by_plain = {_plain(k): k for k in table}
    if short in by_plain:
        return table[by_plain[short]]
    near = [by_plain[k] for k in difflib.get_close_matches(short, by_plain, n=3, cutoff=0.5)]
    hint = f"Did you mean {' or '.join(near)}? `simkv {command}` lists all" if near else f"`simkv {command}` lists all"
    raise SettingsError(field, name, ", ".join(table), hint)


def _plain(name: str) -> str:
    tail = name.strip().rsplit("/", 1)[-1].lower().removesuffix("(text)").strip()
    for suffix in ("-instruct", "-it", "-chat"):
        tail = tail.removesuffix(suffix)
    return tail


def whole(text: str) -> int | None:
    """A table cell as a whole number, ``None`` if empty."""
    return int(text) if text else None


def gb_and_gib(n: float) -> str:
    """Bytes for people, in both units: ``343.60 GB (320.00 GiB)``."""
    return f"{n / GB:.2f} GB ({n / GIB:.2f} GiB)"
