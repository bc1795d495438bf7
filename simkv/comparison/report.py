"""A comparison as one HTML file that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from simkv import __version__
from simkv.comparison import words
from simkv.comparison.comparison import Comparison, Side
from simkv.metrics.series import series
from simkv.text import clock, percent, seconds

COLOURS = ("#2f6db3", "#c2571a", "#2e8b57", "#8e5bb5")
WIDTH, HEIGHT, LEFT = 860, 220, 48
POINTS = 160
_STYLE = """
:root { color-scheme: light dark; --line: #d8dee6; --soft: #5f6b7a; --good: #1a7f4b; --bad: #b3362f; }
@media (prefers-color-scheme: dark) { :root { --line: #333b46; --soft: #9aa5b4; --good: #56c98d; --bad: #ff7f76; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
td:not(:first-child) { white-space: nowrap; } h2 { font-size: 1.15rem; margin-bottom: 0.3rem; } h2 + p { margin-top: 0; }
td small, p small { color: var(--soft); } td small { display: block; }
.better { color: var(--good); } .worse { color: var(--bad); }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; } code { overflow-wrap: anywhere; }
"""


def html_report(comparison: Comparison, source: str = "") -> str:
    """The page. Everything that comes from a file or from people is escaped."""
    sides, w = comparison.sides, comparison.sides[0].run.workload
    names = [s.name for s in sides]
    title = f"{source or w.name}: " + (" and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0])
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p><small>{len(w):,} requests, each side the same ones. simkv {escape(__version__)}.</small></p>",
        "<ul>" + "".join(_side(s) for s in sides) + "</ul>",
        *(
            f"<h2>{escape(e.names[1])} against {escape(e.names[0])}</h2><p>{escape(e.sentence)}</p>{_parting(e.parting)}"
            for e in comparison.explanations
        ),
        "<h2>Figures</h2>",
        _table(comparison),
        _curves(sides) if w.prompts_have_content else "",
        "".join(f"<p><small>{escape(note)}</small></p>" for note in comparison.notes),
        "</body></html>",
    ]
    return "\n".join(p for p in parts if p) + "\n"


def _parting(where: object) -> str:
    sentence = getattr(where, "sentence", "")
    return f"<p><small>{escape(sentence)}</small></p>" if sentence else ""


def _side(side: Side) -> str:
    r = side.run.resolved
    about = f"{r.engine} {r.version}, {words.pool(side.run)}"
    return f"<li><b>{escape(side.name)}</b> <code>{escape(side.label)}</code> <small>{escape(about)}</small></li>"


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(s.name)}</th>" for s in comparison.sides)
    rows = []
    for row in comparison.rows:
        cells = []
        for i, given in enumerate(row.values):
            moved = words.change(row, i)
            extra = f"<small class='{row.verdict(i)}'>{escape(moved)}</small>" if moved else ""
            cells.append(f"<td>{escape(words.value(row.metric, given))}{extra}</td>")
        about = f"{row.metric.about}; {words.better_is(row.metric)}" if row.metric.better else row.metric.about
        rows.append(f"<tr><td>{escape(row.metric.title)}<small>{escape(about)}</small></td>{''.join(cells)}</tr>")
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _curves(sides: Sequence[Side]) -> str:
    """Hit rate over simulated time, one line a side, over the same window."""
    known = [s for s in sides if len(s.run.steps)]
    if not known:
        return ""
    last = max(float(s.run.steps["end"][-1]) for s in known)
    window = last / 20
    lines = [_grid(share) for share in (0.0, 0.5, 1.0)]
    for i, side in enumerate(known):
        data = series(side.run, POINTS, window)
        x = LEFT + data["time"] / (last or 1.0) * (WIDTH - LEFT - 8)
        y = 10 + (1 - data["hit_rate"]) * (HEIGHT - 40)
        for piece in _pieces(np.isfinite(data["hit_rate"])):
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[piece], y[piece], strict=True))
            lines.append(f"<polyline fill=none stroke='{COLOURS[i]}' stroke-width=2 points='{points}'/>")
        lines.append(_text(WIDTH - 24 - 22 * (len(known) - 1 - i), 24, side.name, f"fill:{COLOURS[i]};font-weight:700"))
    timed = known[0].run.workload.time_unit == "seconds"
    end, wide = (clock(last), seconds(window)) if timed else (f"step {last:,.0f}", f"{window:,.0f} steps")
    lines.append(_text(WIDTH - 60, HEIGHT - 6, end))
    about = f"Hit rate over simulated time: cached ÷ looked-up prompt tokens over the last {wide}."
    picture = f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='{about}'>{''.join(lines)}</svg>"
    return f"<h2>Hit rate over time</h2><p><small>{about}</small></p>{picture}"


def _grid(share: float) -> str:
    y = 10 + (1 - share) * (HEIGHT - 40)
    return f"<line x1={LEFT} x2={WIDTH - 8} y1={y:.0f} y2={y:.0f} stroke='#8886'/>" + _text(4, y + 4, percent(share, 0))


def _text(x: float, y: float, words: str, style: str = "") -> str:
    return f"<text x={x:.0f} y={y:.0f} style='{style}'>{escape(words)}</text>"


def _pieces(known: np.ndarray) -> list[slice]:
    """Stretches of consecutive true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
