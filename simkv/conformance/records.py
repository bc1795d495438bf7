"""The records of a recorded log: one JSON object a line, gzip or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkv.errors import InputError


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Record by record. Raises InputError with the line of what is not one."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        number = 0
        try:
            for line in lines:
                number += 1
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("no object")
                yield record
        except (ValueError, EOFError, OSError, zlib.error) as problem:
            raise InputError(f"not JSON ({problem})", file=str(path), line=number, expected="one record a line") from problem
