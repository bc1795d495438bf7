"""A comparison for other programs: JSON and CSV, and the files of ``simkv compare --out``."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simkv import __version__
from simkv.comparison.comparison import Comparison
from simkv.comparison.report import html_report
from simkv.errors import InputError
from simkv.plain import plain, to_json

FILES = ("comparison.json", "comparison.csv", "comparison.html")


def as_mapping(comparison: Comparison, source: str = "", seed: int = 0) -> dict[str, Any]:
    """Everything as plain values: sides with their settings, the table, the explanations, the notes."""
    sides, w = comparison.sides, comparison.sides[0].run.workload
    everything = {
        "simkv": __version__,
        "source": source or w.name,
        "seed": seed,
        "requests": len(w),
        "sides": [
            {
                "name": s.name,
                "label": s.label,
                "engine": s.run.resolved.engine,
                "version": s.run.resolved.version,
                "status": s.run.status,
                "settings": s.run.settings.to_mapping(),
                "num_gpu_blocks": s.run.resolved.num_gpu_blocks,
                "block_size": s.run.resolved.block_size,
            }
            for s in sides
        ],
        "metrics": [
            {
                "key": row.metric.key,
                "title": row.metric.title,
                "unit": row.metric.unit,
                "definition": row.metric.about,
                "better": {1: "higher", -1: "lower", 0: None}[row.metric.better],
                **{s.name: row.values[i] for i, s in enumerate(sides)},
                "change": {s.name: row.change(i) for i, s in enumerate(sides) if i},
                "verdict": {s.name: row.verdict(i) for i, s in enumerate(sides) if i},
            }
            for row in comparison.rows
        ],
        "explanations": [asdict(e) for e in comparison.explanations],
        "notes": comparison.notes,
    }
    out: dict[str, Any] = plain(everything)
    return out


def as_csv(comparison: Comparison) -> str:
    """The table, one line a metric; an empty cell is no data."""
    out, sides = io.StringIO(), comparison.sides
    writer = csv.writer(out, lineterminator="\n")
    names = [s.name for s in sides]
    writer.writerow(["metric", "unit", "better", *names, *(f"{n}_change" for n in names[1:]), "definition"])
    writer.writerow(["settings", "", "", *(_cell(s.label) for s in sides), *("" for _ in names[1:]), ""])
    for row in comparison.rows:
        better = {1: "higher", -1: "lower", 0: ""}[row.metric.better]
        values = ["" if v is None else v for v in row.values]
        changes = ["" if c is None else c for c in (row.change(i) for i in range(1, len(sides)))]
        writer.writerow([row.metric.key, row.metric.unit, better, *values, *changes, row.metric.about])
    return out.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet must not take what somebody wrote for a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than a comparison. Raises InputError."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file", file=str(folder), expected="a folder for the comparison")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / FILES[0]).exists():
        raise InputError("the folder is not empty and holds no comparison", file=str(folder), expected="a new folder")


def save(comparison: Comparison, folder: Path, source: str = "", seed: int = 0) -> None:
    """Write FILES into ``folder``. Raises InputError if that cannot be."""
    check_folder(folder)
    mapping = as_mapping(comparison, source, seed)
    texts = (to_json(mapping) + "\n", as_csv(comparison), html_report(comparison, source))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(FILES, texts, strict=True):
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot be written ({problem.strerror or problem})", file=str(folder)) from None
