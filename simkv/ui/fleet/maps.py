"""The two heat maps of a fleet: replicas over time, and where each prefix group lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from simkv.metrics.fleet import FleetSeries, fleet_series
from simkv.ui import text
from simkv.ui.fleet.heat_map.component import Measure, blob, heat_map
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.fleet.tables import open_replica

HEIGHT = 330
OVER_TIME, GROUPS = "fleet_heat", "group_heat"


def measures(series: FleetSeries, unit: str, has_content: bool) -> list[Measure]:
    """What the colours of replicas × time can show."""
    of, seconds = series.of, unit == "seconds"
    each = f"in bins of {text.seconds(series.bin_s)}" if seconds else f"in bins of {series.bin_s:,.0f} steps"
    per = "s" if seconds else "step"
    found = Measure("Hit rate", f"cached ÷ looked-up prompt tokens, {each}", of["hit_rate"], "percent", "blue", 1.0)
    late = Measure("TTFT p95", f"of first tokens, {each}", of["ttft_p95"], "seconds", "orange", _high(of["ttft_p95"]))
    return [
        *([found] if has_content else []),
        Measure(f"Computed tokens / {per}", f"prompt tokens not found: the load, {each}", of["prefill_tokens_per_s"], "rate", "orange"),
        Measure("Running", "requests in the batch at the end of each bin", of["running"], "count", "orange"),
        Measure("Waiting", "requests in the engine's queue at the end of each bin", of["waiting"], "count", "orange"),
        Measure("KV usage", "blocks of live requests ÷ usable blocks", of["usage"], "percent", "orange", 1.0),
        *([late] if seconds else []),
        Measure(f"Evictions / {per}", f"keys that left the cache, {each}", of["evictions_per_s"], "rate", "orange"),
    ]


def over_time_blob(shown: FleetShown, series: FleetSeries, shows: Sequence[Measure], height: int = HEIGHT, group: str = "") -> bytes:
    """Replicas × time as the browser gets it; maps of one ``group`` show the same measure."""
    more = {
        "title": "Heat map: every replica over time. Up and down choose a replica, Enter opens its block map.",
        "what": "replica",
        "height": height,
        "span": [0.0, float(series.edges[-1])],
        "unit": shown.time_unit,
        "stretches": [{"replica": s.replica, "start": s.start, "end": s.end, "state": s.state} for s in shown.stretches],
        "note": _note(shown),
        "group": group,
    }
    return blob([f"{i}" for i in range(shown.replicas)], shows, more)


def side_by_side(fleets: Sequence[FleetShown], group: str) -> list[bytes]:
    """Replicas × time of several fleets, with one time axis and the same colours for the same figures."""
    end = max(float(s.run.end_time_s) for s in fleets)
    bins = min(len(s.series.edges) - 1 for s in fleets)
    series = [fleet_series(s.run, bins, end) for s in fleets]
    all_of = [measures(x, s.time_unit, s.ladder.has_content) for x, s in zip(series, fleets, strict=True)]
    highs = [max(m.top for m in same) for same in zip(*all_of, strict=True)]
    return [
        over_time_blob(s, x, [replace(m, high=high) for m, high in zip(shows, highs, strict=True)], 190, group)
        for s, x, shows in zip(fleets, series, all_of, strict=True)
    ]


def _high(values: np.ndarray) -> float | None:
    """Where the colours end: a few very late ones would turn all the others pale."""
    known = values[np.isfinite(values)]
    return float(np.quantile(known, 0.98)) or None if len(known) else None


def _note(shown: FleetShown) -> str:
    states = {s.state for s in shown.stretches}
    parts = ["blank: nothing measured"]
    if "down" in states:
        parts.append("red hatching: down or starting")
    if "draining" in states:
        parts.append("yellow bar: draining")
    return " · ".join(parts)


def over_time(shown: FleetShown) -> None:
    """Draw replicas × time; a click opens a replica."""
    heat_map(_kept(shown, OVER_TIME), key=OVER_TIME, on_row=_open)


def _open() -> None:
    row = (st.session_state.get(OVER_TIME) or {}).get("row")
    if isinstance(row, (int, float)):
        open_replica(int(row))


def small(data: bytes, key: str) -> None:
    """Draw one of several fleets beside each other; a row leads nowhere."""
    heat_map(data, key=key, on_row=_nothing)


def groups_blob(shown: FleetShown) -> bytes:
    """Prefix groups × replicas as the browser gets it."""
    g = shown.groups
    sent = g.requests.astype(float)
    sent[g.requests == 0] = np.nan

    def where(values: np.ndarray) -> np.ndarray:
        return np.where(g.requests > 0, values, np.nan).astype(float)

    def high(values: np.ndarray) -> float | None:
        """Where the colours end: what is left over behind a common stem would turn all other groups pale."""
        own = values[~g.rest] if not g.rest.all() else values
        return float(own.max(initial=0)) or None

    with np.errstate(divide="ignore", invalid="ignore"):
        share = where(g.delivered / g.ceiling)
    shows = [
        Measure("Requests", "requests of the group that the replica served", sent, "count", "blue", high(g.requests)),
        Measure("Tokens found cached", "prompt tokens the engine found", where(g.delivered), "count", "blue", high(g.delivered)),
        Measure("Of what one cache would find", "tokens found ÷ tokens one endless cache would have", share, "percent", "blue", 1.0),
        Measure("Lost between replicas", "tokens that were cached on another replica only", where(g.ceiling - g.routed), "count", "orange"),
    ]
    names = [f"{name} ({text.counted(int(n), 'token')})" for name, n in zip(g.names(shown.run.workload), g.tokens.tolist(), strict=True)]
    more = {
        "title": "Heat map: where the requests of each prefix group went",
        "what": "group",
        "column": "replica",
        "names": [f"{i}" for i in range(shown.replicas)],
        "height": 24 * len(g) + 22,
        "most": 24,
        "figures": True,
        "note": "blank: no request of the group went there",
    }
    return blob(names, shows, more)


def groups(shown: FleetShown) -> None:
    """Draw groups × replicas and a table of the groups."""
    g = shown.groups
    if not len(g):
        st.info("No two requests share a prefix, so there is nothing to keep together.")
        return
    copies = (g.requests > 0).sum(axis=1)
    st.caption(
        "The prefixes that carry most of the reuse, cut where they branch; a system prompt of all makes one group per document,"
        f" tenant or chat behind it. A prefix on k replicas is computed and held k times; here the heaviest is on {copies[0]}."
    )
    heat_map(_kept(shown, GROUPS), key=GROUPS, on_row=_nothing)
    number = st.column_config.NumberColumn(format="localized")
    share = st.column_config.NumberColumn(format="%.0f %%")
    total = {name: getattr(g, name).sum(axis=1) for name in ("requests", "ceiling", "routed", "delivered")}
    with st.expander("As a table"):
        st.dataframe(
            {
                "group": g.names(shown.run.workload),
                "shared tokens": g.tokens.tolist(),
                "requests": total["requests"].tolist(),
                "on replicas": copies.tolist(),
                "one cache would find": total["ceiling"].tolist(),
                "lost between replicas": (total["ceiling"] - total["routed"]).tolist(),
                "found": total["delivered"].tolist(),
                "of it": [100 * d / c if c else None for d, c in zip(total["delivered"].tolist(), total["ceiling"].tolist(), strict=True)],
            },
            hide_index=True,
            alt="Prefix groups with their tokens",
            column_config={
                **dict.fromkeys(("shared tokens", "requests", "one cache would find", "lost between replicas", "found"), number),
                "of it": share,
            },
        )


def _kept(shown: FleetShown, which: str) -> bytes:
    """Identical bytes are sent once per browser: the same object for every run of the script."""
    kept: dict[str, bytes] = shown.blobs
    if which not in kept:
        shows = measures(shown.series, shown.time_unit, shown.ladder.has_content)
        kept[which] = over_time_blob(shown, shown.series, shows) if which == OVER_TIME else groups_blob(shown)
    return kept[which]


def _nothing() -> None:
    """A group is no place to go to."""
