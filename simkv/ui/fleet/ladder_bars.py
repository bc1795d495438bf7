"""The ladder as bars: what could be reused, what routing left of it, what was delivered. Nothing in it comes from a trace."""

from __future__ import annotations

from html import escape

from simkv.diagnosis.ladder import Ladder
from simkv.ui import text

ABOUT = {
    "new content": "the rest of the prompts is new: no earlier request began so",
    "routing": "the prefix was computed, but on another replica",
    "cold starts": "the replica had lost its cache when its process ended",
    "capacity and timing": "evicted before it came back, or still being computed",
}


def html(ladder: Ladder, compact: bool = False) -> str:
    """The rungs as an HTML figure; ``compact``: one line a rung."""
    if not ladder.has_content or not ladder.queries:
        return "<div class=ladder><p>No content, no ladder: the source does not say what prompts share.</p></div>"
    rows, before = [], ladder.queries
    for name, tokens, rate, loss in ladder.rungs():
        points = (before - tokens) / ladder.queries * 100
        width = max(0.0, min(100.0, rate * 100))
        away = max(0.0, min(100.0 - width, points))
        first = loss == "new content"
        lost = "" if first else f"<span class=lost style='width:{away:.2f}%'></span>"
        said = f"of {text.short_count(ladder.queries)} prompt tokens" if first else f"−{points:.1f} points: {escape(loss)}"
        said = f"nothing lost: {escape(loss)}" if abs(points) < 0.05 and not first else said.replace("−-", "+")
        rows.append(
            f"<div class=rung title='{escape(ABOUT[loss], quote=True)}'><div class=name>{escape(name)}<b>{text.percent(rate)}</b></div>"
            f"<div class=track><span class=have style='width:{width:.2f}%'></span>{lost}</div><div class=loss>{said}</div></div>"
        )
        before = tokens
    return f"<div class='ladder{' compact' * compact}' role=img aria-label='{escape(spoken(ladder), quote=True)}'>{''.join(rows)}</div>"


def spoken(ladder: Ladder) -> str:
    """The same in a sentence."""
    return "; ".join(f"{name}: {text.percent(rate)}" for name, _, rate, _ in ladder.rungs())
