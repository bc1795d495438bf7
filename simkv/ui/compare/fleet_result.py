"""A finished comparison of fleets: both axes, hit rate and load, side by side and per replica."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st

from simkv.comparison import words
from simkv.comparison.fleets import FleetComparison, FleetSide, elsewhere
from simkv.plain import to_json
from simkv.settings.fleet import FleetSettings
from simkv.ui import engine_form, navigation, text
from simkv.ui.compare import figures
from simkv.ui.compare.sides import COLOURS, Place
from simkv.ui.fleet import ladder_bars, maps, tables
from simkv.ui.fleet.shown import FleetShown

TABS = ("Figures", "Per replica", "Prefix groups", "Requests that found more or less", "Settings")
_CARD = ("hit_rate", "busiest", "ttft_p95_s")
EXPLAINED = "Why hits differ request by request, from the event logs, is explained for single replicas; of fleets the ladder says where."


def comparison(names: Sequence[tuple[str, str]], shown: Sequence[FleetShown]) -> FleetComparison:
    """The comparison of the fleets that there are. ``names``: name and label of every side."""
    return FleetComparison(
        tuple(FleetSide(name, label, s.run, s.ladder, s.locality) for (name, label), s in zip(names, shown, strict=False))
    )


def sentences(found: FleetComparison) -> None:
    """The answer, on top of the page: how each side differs from A on both axes."""
    with st.container(key="answers"):
        for i, side in enumerate(found.sides[1:], start=1):
            first, dot, rest = found.sentence(i).partition(". ")
            st.markdown(f":{COLOURS[side.name]}-badge[**{side.name}**] **{text.plain(first + dot.strip(), 600)}** {text.plain(rest, 600)}")


def cards(found: FleetComparison, places: Sequence[Place]) -> None:
    """The most important figures on every side's card."""
    rows = {row.metric.key: row for row in found.rows}
    for i, (side, place) in enumerate(zip(found.sides, places, strict=False)):
        fleet, one = side.run.fleet, side.run.replica(0)
        told = [f"{rows[k].metric.title} **{words.value(rows[k].metric, rows[k].values[i])}**" for k in _CARD if k in rows]
        with place.figures:
            engine = engine_form.TITLES.get(one.resolved.engine, one.resolved.engine)
            st.caption(text.plain(f"{_who(fleet)}; {engine} {one.resolved.version}, {words.pool(one)} each", 200))
            st.markdown("  \n".join(told))
        with place.row:
            navigation.link_to_explore(side.run.settings, fleet)


def _who(fleet: FleetSettings) -> str:
    return "1 replica" if fleet.slots == 1 else f"{text.counted(fleet.replicas, 'replica')} behind {fleet.router}"


def draw(found: FleetComparison, shown: Sequence[FleetShown]) -> None:
    """Everything below the cards."""
    _maps(found, shown)
    _tabs(found, shown)
    st.caption(EXPLAINED)
    for side in found.sides:
        for note in side.run.notes:
            st.caption(text.plain(f"{side.name}: {note}", 500))
    st.download_button("comparison.json", lambda: as_json(found), "comparison.json", "application/json", on_click="ignore")


@st.fragment
def _maps(found: FleetComparison, shown: Sequence[FleetShown]) -> None:
    group = hashlib.sha256(" ".join(s.digest for s in shown).encode()).hexdigest()[:12]
    kept = shown[0].blobs
    names = [f"{group}.{side.name}" for side in found.sides]
    if names[-1] not in kept:
        kept.update(zip(names, maps.side_by_side(shown, group), strict=True))
    columns = st.columns(len(shown) if len(shown) < 4 else 2, gap="medium")
    for i, (side, name) in enumerate(zip(found.sides, names, strict=True)):
        with columns[i % len(columns)]:
            who = text.plain(_who(side.run.fleet), 100)
            st.markdown(f":{COLOURS[side.name]}-badge[**{side.name}**] :small[{who}]")
            maps.small(kept[name], f"heat.{side.name}")
            st.html(ladder_bars.html(side.ladder, compact=len(shown) < 3))


@st.fragment
def _tabs(found: FleetComparison, shown: Sequence[FleetShown]) -> None:
    opened = dict(zip(TABS, st.tabs(TABS, key="compare_fleet_tab", on_change="rerun"), strict=True))
    for name, tab in opened.items():
        if not tab.open:
            continue
        with tab:
            if name == "Figures":
                figures.draw(found.rows, [side.name for side in found.sides])
            elif name == "Per replica":
                _per_replica(found, shown)
            elif name == "Prefix groups":
                _groups(found, shown)
            elif name == "Settings":
                st.dataframe(settings(found), hide_index=True, alt="Settings of every side")
            else:
                _elsewhere(found)


def per_replica(found: FleetComparison, shown: Sequence[FleetShown]) -> dict[str, list[Any]]:
    """Hit rate, load and TTFT of the replicas of every side beside each other, the busiest of each side first."""
    most = max(s.replicas for s in shown)
    out: dict[str, list[Any]] = {"rank": list(range(1, most + 1))}
    for side, s in zip(found.sides, shown, strict=True):
        table = tables.replica_columns(s)
        order = np.argsort(-np.array(table["computed"]), kind="stable").tolist()
        for column, title in (("replica", ""), ("hit rate", "hit rate"), ("computed", "computed"), ("TTFT p95", "TTFT p95")):
            cells = [table[column][k] for k in order]
            out[f"{side.name} {title or 'replica'}"] = cells + [None] * (most - len(cells))
    return out


def _per_replica(found: FleetComparison, shown: Sequence[FleetShown]) -> None:
    st.caption("The busiest replica of each side first: what it computed, what it found, how long its requests waited.")
    columns = per_replica(found, shown)
    shapes: dict[str, Any] = {}
    top = max(max(tables.replica_columns(s)["computed"], default=0) for s in shown) or 1
    for side in found.sides:
        shapes[f"{side.name} hit rate"] = st.column_config.ProgressColumn(format="%.1f %%", min_value=0, max_value=100)
        shapes[f"{side.name} computed"] = st.column_config.ProgressColumn(format="compact", min_value=0, max_value=top)
        shapes[f"{side.name} TTFT p95"] = st.column_config.NumberColumn(format="%.3f s")
    st.dataframe(columns, hide_index=True, column_config=shapes, alt="Replicas of every side with hit rate, load and TTFT")


def groups(found: FleetComparison, shown: Sequence[FleetShown]) -> dict[str, list[Any]]:
    """The heaviest prefix groups, and on how many replicas of every side they live, as columns."""
    first = shown[0].groups
    w = shown[0].run.workload
    out: dict[str, list[Any]] = {
        "group": first.names(w),
        "shared tokens": first.tokens.tolist(),
        "requests": first.requests.sum(axis=1).tolist(),
        "one cache would find": first.ceiling.sum(axis=1).tolist(),
    }
    for side in found.sides:
        x, placed = side.ladder, side.run.placed
        inside = [(first.of == g) & x.counted[: len(first.of)] for g in range(len(first))]
        out[f"{side.name} on replicas"] = [len(np.unique(placed[: len(first.of)][m])) for m in inside]
        out[f"{side.name} found"] = [int(x.of_delivered[: len(first.of)][m].sum()) for m in inside]
    return out


def _groups(found: FleetComparison, shown: Sequence[FleetShown]) -> None:
    columns = groups(found, shown)
    if not columns["group"]:
        st.info("No two requests share a prefix, so there is nothing to keep together.")
        return
    st.caption("The prefixes that carry most of the reuse. A prefix on k replicas is computed and held k times.")
    number = st.column_config.NumberColumn(format="localized")
    shapes = dict.fromkeys((n for n in columns if n != "group"), number)
    st.dataframe(columns, hide_index=True, column_config=shapes, alt="Prefix groups and where they live on every side")


def _elsewhere(found: FleetComparison) -> None:
    number = st.column_config.NumberColumn(format="localized")
    a = found.sides[0]
    for side in found.sides[1:]:
        columns = elsewhere(a, side)
        st.markdown(f"**{side.name} against {a.name}**")
        if not columns["request"]:
            st.info("Every request found the same.")
            continue
        shapes = dict.fromkeys(("prompt", "difference", f"cached in {a.name}", f"cached in {side.name}"), number)
        st.dataframe(columns, hide_index=True, height=245, column_config=shapes, alt="Requests whose cached tokens differ most")


def settings(found: FleetComparison) -> dict[str, list[str]]:
    """The settings of engine and fleet that are not the same everywhere, as columns."""
    mappings = [{**s.run.settings.to_mapping(), **{f"fleet: {k}": v for k, v in s.run.fleet.to_mapping().items()}} for s in found.sides]
    names = [n for n in dict.fromkeys(n for m in mappings for n in m) if len({str(m.get(n, "–")) for m in mappings}) > 1]
    return {"setting": names, **{s.name: [str(m.get(n, "–")) for n in names] for s, m in zip(found.sides, mappings, strict=True)}}


def as_json(found: FleetComparison) -> bytes:
    """The figures of every side for machines."""
    rows = {row.metric.key: dict(zip((s.name for s in found.sides), row.values, strict=True)) for row in found.rows}
    told = [
        {
            "name": s.name,
            "label": s.label,
            "settings": s.run.settings.to_mapping(),
            "fleet": s.run.fleet.to_mapping(),
            "ladder": s.ladder.summary(),
            "answer": found.sentence(i) if i else None,
        }
        for i, s in enumerate(found.sides)
    ]
    return to_json({"sides": told, "figures": rows}).encode()
