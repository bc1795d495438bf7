"""A short list of facts whose values may lead somewhere (a block, a request). Values are drawn as text, never as markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: a label, a value, and where a click on the value leads.

    Args:
        label: what it is; empty continues the row above.
        value: the text; may come from a trace.
        block: a click selects this block.
        request: a click selects this request.
        step: a click moves the map to this step.
        hint: a longer explanation, shown on hover and read by screen readers.
    """

    label: str
    value: str
    block: int | None = None
    request: int | None = None
    step: int | None = None
    hint: str = ""

    @property
    def leads(self) -> dict[str, int] | None:
        """Where a click goes: ``{"block": …}``, ``{"request": …}`` or ``{"step": …}``."""
        go = {"block": self.block, "request": self.request, "step": self.step}
        return {k: int(v) for k, v in go.items() if v is not None} or None


_FACTS = st.components.v2.component(
    "simkv_facts",
    html='<dl class="facts"></dl>',
    css=(HERE / "facts.css").read_text(encoding="utf-8"),
    js=(HERE / "facts.js").read_text(encoding="utf-8"),
)


def facts(
    rows: Sequence[Fact], *, key: str, title: str = "", note: str = "", on_go: Callable[[], None] | None = None
) -> dict[str, int] | None:
    """Draw the list. Returns where a click led in this run of the script, else ``None``."""
    data = {
        "title": title,
        "note": note,
        "rows": [{"label": r.label, "value": r.value, "hint": r.hint, "go": r.leads} for r in rows],
    }
    result = _FACTS(data=data, key=key, on_go_change=on_go or _nothing)
    go: dict[str, int] | None = result.get("go")
    return go


def _nothing() -> None:
    pass
