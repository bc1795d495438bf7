"""A workload in one file, exactly: its arrays and texts as NumPy's npz, without pickle."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from simkv.errors import InputError
from simkv.workload.workload import Lora, ReadReport, Workload

FORMAT = 1
_TEXT = "texts.json"


def save_workload(workload: Workload, target: Path) -> None:
    """Write ``workload`` to ``target`` (a name ending in .npz)."""
    arrays: dict[str, Any] = {}
    texts: dict[str, Any] = {"format_version": FORMAT}
    for field in dataclasses.fields(workload):
        value = getattr(workload, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif field.name == "loras":
            texts[field.name] = [dataclasses.asdict(adapter) for adapter in value]
        elif field.name == "report":
            texts[field.name] = dataclasses.asdict(value)
        elif field.name == "ids":
            texts[field.name] = None if value is None else list(value)
        else:
            texts[field.name] = dict(value) if field.name in ("engine", "step_time") else value
    arrays[_TEXT] = np.frombuffer(json.dumps(texts, default=dataclasses.asdict).encode(), np.uint8)
    np.savez(target, allow_pickle=False, **arrays)


def load_workload(source: Path) -> Workload:
    """Read what ``save_workload`` wrote. Raises InputError for a missing, damaged or foreign file."""
    try:
        with source.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            values: dict[str, Any] = json.loads(bytes(stored[_TEXT]))
            arrays = {name: stored[name] for name in stored.files if name != _TEXT}
        if values.pop("format_version") != FORMAT:
            raise ValueError("another format")
        values["loras"] = tuple(Lora(**adapter) for adapter in values["loras"])
        report = values["report"]
        values["report"] = ReadReport(report["rows"], report["dropped"], tuple(report["first_dropped"]), tuple(report["notes"]))
        for name in ("salts", "extra_keys", "image_identifiers", "tenants", "sessions"):
            values[name] = tuple(values[name])
        return Workload(**values, **arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as problem:
        raise InputError(f"not a stored workload ({problem})", file=str(source), hint="Run `simkv replay … --out DIR` again") from None
