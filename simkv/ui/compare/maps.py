"""The block maps of all sides under one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from simkv.comparison import Comparison
from simkv.ui import text
from simkv.ui.block_map.component import Mark, linked_map, scrub_bar
from simkv.ui.block_map.payload import with_meta
from simkv.ui.shown import Shown

KEY, PARAMETER = "clock", "t"
HEIGHT = 230
CLOSE = 0.08
"""Share of the bar that the label of a mark takes."""


@st.fragment
def draw(comparison: Comparison, shown: Sequence[Shown], group: str) -> None:
    """One scrub bar over the simulated time of the longest run, and a map a side that follows it in the browser."""
    drawn = [(side, s) for side, s in zip(comparison.sides, shown, strict=True) if s.history is not None]
    if not drawn:
        st.info(text.plain(shown[0].note or "No side kept its event log, so there are no block maps.", 300), icon=":material/grid_off:")
        return
    span = (0.0, max(end(s) for _, s in drawn))
    unit = shown[0].time_unit
    start = _start([s for _, s in drawn], span)
    scrub_bar(group, span, unit=unit, start=start, marks=marks(comparison, span), key=KEY, on_time=_remember)
    rows = [drawn] if len(drawn) < 4 else [drawn[:2], drawn[2:]]
    for row in rows:
        for column, (side, s) in zip(st.columns(len(row), gap="medium"), row, strict=True):
            with column:
                r = side.run.resolved
                st.markdown(f"**{side.name}** :small[{r.num_gpu_blocks:,} blocks of {text.counted(r.block_size, 'token')}]")
                linked_map(with_meta(s.blob, meta(group, span, s)), key=f"map.{side.name}")
    missing = [side.name for side, s in zip(comparison.sides, shown, strict=True) if s.history is None]
    if missing:
        st.caption(f"{', '.join(missing)}: the event log was too big to keep, so there is no map. Limit the requests to see it.")


def meta(group: str, span: tuple[float, float], shown: Shown) -> dict[str, Any]:
    """What a map must know to follow the clock."""
    return {"group": group, "span": list(span), "end": end(shown), "height": HEIGHT, "run": f"{group}/{shown.digest}"}


def end(shown: Shown) -> float:
    """When the run's last step was over."""
    return float(shown.run.steps["end"][-1]) if len(shown.run.steps) else 0.0


def marks(comparison: Comparison, span: tuple[float, float]) -> list[Mark]:
    """Where the sides part from A; moments too close to be told apart on the bar are one mark."""
    out: list[Mark] = []
    known = [(e.parting.at, e.names[1], e.parting.sentence) for e in comparison.explanations if e.parting is not None]
    for at, name, sentence in sorted(known):
        title = f"{name}: {sentence}"
        if out and at - out[-1].time < CLOSE * (span[1] - span[0]):
            before = out.pop()
            names = before.label.removesuffix(" parts").removesuffix(" part")
            out.append(Mark(before.time, f"{names}, {name} part", f"{before.title}\n{title}"))
        else:
            out.append(Mark(at, f"{name} parts", title))
    return out


def _start(shown: Sequence[Shown], span: tuple[float, float]) -> float:
    """Where the link points, else where A's story is, at the latest shortly before the first side has ended."""
    given = st.query_params.get(PARAMETER, "")
    if given.isascii() and given.replace(".", "", 1).isdigit() and float(given) <= span[1]:
        return float(given)
    return min(float(shown[0].timeline.time[shown[0].start_step]), *(0.8 * end(s) for s in shown))


def _remember() -> None:
    time = (st.session_state.get(KEY) or {}).get("time")
    if isinstance(time, (int, float)):
        st.query_params[PARAMETER] = f"{time:.2f}"
