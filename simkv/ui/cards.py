"""The five figures above the map: each with its window in its name, its definition one hover away, its course as a sparkline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import streamlit as st

from simkv.ui import text
from simkv.ui.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Card:
    """One metric card. ``delta`` compares with the whole run; it is words, never a judgement."""

    label: str
    value: str
    delta: str
    help: str
    curve: tuple[float, ...]


def cards(
    timeline: Timeline,
    curves: Mapping[str, npt.NDArray[np.float64]],
    step: int,
    *,
    hit_rate: float,
    ttft_p95_s: float,
    evicted: int,
    preemptions: int,
    complete: bool = True,
    at_lookup: bool = False,
) -> list[Card]:
    """The cards at a step.

    Args:
        timeline: the run's windowed figures.
        curves: their courses (simkv.metrics.series with the same window).
        step: the moment shown.
        hit_rate: of the whole run (NaN: there is none, so no moment has one), as are ``ttft_p95_s``, ``evicted`` (keys)
            and ``preemptions``.
        complete: whether the run came to its end; else its figures are "so far".
        at_lookup: the release counts every lookup of a waiting request (``Profile.stats_at_lookup``).
    """
    t, window = timeline, timeline.window_name
    per = "s" if t.time_unit == "seconds" else "step"
    whole = "whole run" if complete else "so far"
    counted = (
        "counted at every lookup as this release does, so one that waits for memory is counted anew each time; the headline counts "
        "first admissions only"
        if at_lookup
        else "counted at admission"
    )
    show_time = text.seconds if t.time_unit == "seconds" else _steps
    return [
        Card(
            f"Hit rate, {window}",
            text.percent(t.hit_rate(step) if math.isfinite(hit_rate) else math.nan),
            f"{text.percent(hit_rate)} {whole}",
            f"Prompt tokens found in the prefix cache ÷ prompt tokens looked up, {counted}: "
            "rate(vllm:prefix_cache_hits_total) ÷ rate(vllm:prefix_cache_queries_total) over this window.",
            _curve(curves["hit_rate"]),
        ),
        Card(
            "KV usage, live requests",
            text.percent(t.usage(step)),
            f"{text.percent(t.rolling.mean_usage)} mean {whole}",
            "Blocks held by live requests ÷ usable blocks (vllm:kv_cache_usage_perc). Cached blocks that nobody holds count as free, "
            "so evictions can be frequent while this is low. The mean is over time, idle time included.",
            _curve(curves["usage"]),
        ),
        Card(
            f"Evictions / {per}, {window}",
            _rate(t.evictions(step)),
            f"{evicted:,} {whole}",
            "Blocks whose key left the prefix cache because the block was needed (BlockRemoved events).",
            _curve(curves["evictions_per_s"]),
        ),
        Card(
            f"TTFT p95, {window}",
            show_time(t.ttft(step)),
            f"{show_time(ttft_p95_s)} {whole}",
            "95th percentile of the time from arrival to first token, over requests whose first token came within this window.",
            _curve(curves["ttft_p95"]),
        ),
        Card(
            "Preemptions up to here",
            f"{t.preemptions(step):,}",
            f"{preemptions:,} {whole}",
            "Running requests thrown out of the batch because no block was free; they are computed again (vllm:num_preemptions_total).",
            _curve(curves["preemptions"]),
        ),
    ]


def draw(shown: list[Card]) -> None:
    """Draw the cards in one row of equal height."""
    for column, card in zip(st.columns(len(shown)), shown, strict=True):
        column.metric(
            card.label,
            card.value,
            card.delta,
            help=card.help,
            border=True,
            height="stretch",
            chart_data=list(card.curve) or None,
            chart_type="area",
            delta_color="off",
            delta_arrow="off",
        )


def _curve(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """The course, NaN where it has a gap; empty if there is no line to draw."""
    return tuple(values.tolist()) if np.count_nonzero(np.isfinite(values)) > 1 else ()


def _steps(value: float) -> str:
    return text.counted(round(value), "step") if math.isfinite(value) else text.NO_DATA


def _rate(value: float) -> str:
    if not math.isfinite(value):
        return text.NO_DATA
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
