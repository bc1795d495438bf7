"""The block map: a canvas the browser scrubs by itself. The history goes over the wire once; clicks and releases come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the scrub bar: a short label, and more on hover."""

    time: float
    label: str
    title: str


def _text(*names: str) -> str:
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


_MAP = st.components.v2.component(
    "simkv_block_map",
    html=_text("block_map.html"),
    css=_text("block_map.css"),
    js=_text("history.js", "painter.js", "timeline.js", "player.js", "sharing.js", "linked.js", "block_map.js"),
)

_SCRUB = st.components.v2.component("simkv_scrub", html=_text("scrub.html"), css=_text("scrub.css"), js=_text("scrub.js"))


def block_map(data: bytes, *, key: str, on_select: Callable[[], None], on_frame: Callable[[], None]) -> None:
    """Draw the map.

    ``st.session_state[key]`` then holds ``sel`` (the clicked ``{"block", "frame"}`` or ``None``) and ``frame`` (where
    the slider was last released); ``on_select`` and ``on_frame`` are called when one of them changes.
    """
    _MAP(data=data, key=key, on_sel_change=on_select, on_frame_change=on_frame)


def show_on_map(seq: int, run: str, *, step: int, block: int | None = None, marks: Sequence[int] = (), label: str = "", key: str) -> None:
    """Tell the map what the server looks at.

    Args:
        seq: grows when the map must move to ``step`` and ``block``; with the number it knows it stays where it is.
        run: the ``run`` of ``payload()`` it is about.
        marks: blocks to outline while ``step`` is shown; ``label`` says what they are.
    """
    data = {"seq": seq, "run": run, "step": step, "block": block, "marks": [int(b) for b in marks], "label": label}
    _MAP(data=data, key=key, height=1)


def scrub_bar(
    group: str, span: tuple[float, float], *, unit: str, start: float, marks: Sequence[Mark] = (), key: str, on_time: Callable[[], None]
) -> None:
    """One clock for all maps of a group (their payload's ``group``); it moves them in the browser, without the server.

    ``st.session_state[key]`` then holds ``time``, where the bar was last let go; ``on_time`` is called when it changes.

    Args:
        span: first and last moment of simulated time.
        unit: ``seconds`` or ``steps``.
        start: where the bar stands at first.
        marks: moments to jump to.
    """
    told = [{"time": m.time, "label": m.label, "title": m.title} for m in marks]
    data = {"group": group, "span": list(span), "unit": unit, "start": start, "marks": told}
    _SCRUB(data=data, key=key, on_time_change=on_time)


def linked_map(data: bytes, *, key: str) -> None:
    """Draw a map that follows a ``scrub_bar``."""
    _MAP(data=data, key=key, on_sel_change=_nothing, on_frame_change=_nothing)


def _nothing() -> None:
    """A selection in a linked map stays in the browser."""
