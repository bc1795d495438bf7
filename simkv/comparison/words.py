"""Figures of a comparison as people read them: the same in the terminal, on the page and in the report."""

from __future__ import annotations

from simkv import text
from simkv.comparison.metrics import LOWER, Metric, Row
from simkv.replay import Run


def pool(run: Run) -> str:
    """How much KV cache a run has: comparable over block sizes and engines."""
    r = run.resolved
    return f"{(r.num_gpu_blocks - 1) * r.block_size:,} KV tokens in blocks of {r.block_size:,}"


def value(metric: Metric, given: float | None, none: str = text.NO_DATA) -> str:
    """A figure in its unit."""
    if given is None:
        return none
    if metric.unit == "share":
        return text.percent(given)
    if metric.unit == "s":
        return text.seconds(given)
    if metric.unit == "tokens":
        return text.short_count(given)
    if metric.unit in ("GiB", "factor"):
        return f"{given:,.1f} GiB" if metric.unit == "GiB" else f"{given:,.2f} ×"
    if metric.unit.endswith("/s"):
        return f"{given:,.0f}/s" if given >= 100 else f"{given:,.3g}/s"
    return text.count(given)


def change(row: Row, side: int) -> str:
    """How far a side is from A: ``+3.1 points``, ``−12 %``, ``3.4 ×``, ``230 × less``; empty for A, without data, or if there is
    nothing to see at this precision.
    """
    a, b, moved = row.values[0], row.values[side], row.change(side)
    if side == 0 or a is None or b is None or a == b:
        return ""
    if moved is None:
        return f"+{value(row.metric, b)}"
    if row.metric.unit == "share":
        return f"{_sign(moved)}{abs(moved) * 100:.1f} points" if abs(moved) >= 0.0005 else ""
    if moved >= 1.0:
        return f"{b / a:,.1f} ×"
    if moved <= -0.9 and b > 0:
        return f"{a / b:,.0f} × less"
    return f"{_sign(moved)}{abs(moved) * 100:.{0 if abs(moved) >= 0.095 else 1}f} %" if abs(moved) >= 0.0005 else ""


def better_is(metric: Metric) -> str:
    """Which way is better, in words; empty where neither is."""
    return "" if not metric.better else "lower is better" if metric.better == LOWER else "higher is better"


def _sign(moved: float) -> str:
    return "+" if moved > 0 else "−"
