"""What is looked at: a step, a block, a request. Kept in the session and in the URL, so that a link shows the same."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from simkv.ui.shown import Shown

MAP_KEY = "map"
TAB_KEY = "tab"
_SLOT = "_cursor"


@dataclass(slots=True)
class Cursor:
    """A place in a run.

    Args:
        run: digest of the run it is about.
        step: the moment shown.
        block: the selected block.
        request: the selected request.
        wish: grows whenever the server wants the map to move; the browser follows the newest.
    """

    run: str
    step: int
    block: int | None = None
    request: int | None = None
    wish: int = 0


def cursor(shown: Shown) -> Cursor:
    """The session's cursor for a run: where it was, else where the link points, else where the story is."""
    known: Cursor | None = st.session_state.get(_SLOT)
    if known is not None and known.run == shown.digest:
        return known
    here = Cursor(shown.digest, shown.start_step, wish=known.wish + 1 if known else 1)
    if known is None:
        step = _number("step", shown.last_step)
        here.step = shown.start_step if step is None else shown.frame_step(step)
        here.block = _number("block", shown.run.resolved.num_gpu_blocks - 1)
        if here.block is None and step is None:
            here.block = shown.start_block
        here.request = _number("request", len(shown.run.workload) - 1)
    st.session_state[_SLOT] = here
    write_url(here, shown)
    return here


def move(shown: Shown, *, step: int | None = None, block: int | None = None, request: int | None = None, told: bool = False) -> None:
    """Go to a step, a block or a request.

    Args:
        told: the map itself reported the place, so it need not be moved there.
    """
    here = cursor(shown)
    if step is not None:
        here.step = shown.frame_step(step)
    if block is not None:
        here.block = max(0, min(shown.run.resolved.num_gpu_blocks - 1, block))
    if request is not None:
        here.request = max(0, min(len(shown.run.workload) - 1, request))
    if not told:
        here.wish += 1
    write_url(here, shown)


def from_map(shown: Shown, what: str) -> None:
    """Take over what the map reports: ``sel`` (a click) or ``frame`` (the slider let go)."""
    if shown.history is None:
        return
    reported = st.session_state.get(MAP_KEY) or {}
    if what == "sel":
        here, sel = cursor(shown), reported.get("sel")
        here.block = None
        if isinstance(sel, dict):
            move(shown, step=_step(shown, sel.get("frame")), block=_whole(sel.get("block")), told=True)
        else:
            write_url(here, shown)
    else:
        move(shown, step=_step(shown, reported.get("frame")), told=True)


def follow(shown: Shown, go: dict[str, int] | None) -> None:
    """Go where a click on a fact leads; a request opens the tab with its block table."""
    if not go:
        return
    move(shown, step=go.get("step"), block=go.get("block"), request=go.get("request"))
    if "request" in go:
        st.session_state[TAB_KEY] = "Block tables"


def write_url(here: Cursor, shown: Shown) -> None:
    """Put the place into the page's address."""
    opening = here.step == shown.start_step
    wanted = {
        "step": None if opening else here.step,
        "block": None if opening and here.block == shown.start_block else here.block,
        "request": here.request,
    }
    for name, value in wanted.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)


def _step(shown: Shown, frame: object) -> int | None:
    at = _whole(frame)
    if at is None or shown.history is None or not 0 <= at < len(shown.history.frames):
        return None
    return int(shown.history.frames[at])


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else None


def _number(name: str, most: int) -> int | None:
    given = st.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 and int(given) <= most else None
