"""Recorded beam parentage: who descended from whom, step by step, where a real model has been asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError


@dataclass(frozen=True, eq=False)
class Parentage:
    """Parents of the ``2 K`` candidates of every beam step after the prompt's, best candidate first.

    Args:
        rows: ``i4[steps, 2 K]``, each entry the place 0 … K-1 of a beam in the order the engine keeps: beams that went on,
            then new forks by rank.
        first: ``i8[n + 1]``; request ``i`` owns ``rows[first[i]:first[i + 1]]``, one row per output token but the first.
    """

    rows: npt.NDArray[np.int32]
    first: npt.NDArray[np.int64]

    def check(self, outputs: Sequence[int] | npt.NDArray[np.int32], width: int, file: str = "parents") -> None:
        """Raise InputError unless there is a row of ``2 * width`` beams for every output token but a request's first."""
        if self.rows.ndim != 2 or self.rows.shape[1] != 2 * width:
            raise InputError(f"rows of shape {self.rows.shape}", file=file, expected=f"{2 * width} candidates in each row")
        need = np.maximum(np.asarray(outputs, np.int64) - 1, 0)
        if len(self.first) != len(need) + 1 or (np.diff(self.first) < need).any():
            raise InputError("too few steps", file=file, expected="for each request of the workload one row per output token but the first")
        if ((self.rows < 0) | (self.rows >= width)).any():
            raise InputError("a parent that is no beam", file=file, expected=f"places from 0 to {width - 1}")


def read_parentage(path: Path) -> Parentage:
    """JSON lines, one for each request in the workload's order: a list of steps, each a list of ``2 K`` parents.

    Raises:
        InputError: with line, for anything else.
    """
    rows: list[list[int]] = []
    first = [0]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot be read ({problem})", file=str(path)) from problem
    expected = "a list of steps, each a list of whole numbers, all of one length"
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            steps = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise InputError("no JSON", file=path.name, line=at, expected=expected) from problem
        if not isinstance(steps, list) or not all(_is_row(step, rows[0] if rows else step) for step in steps):
            raise InputError("the value is something else", file=path.name, line=at, expected=expected)
        rows += steps
        first.append(len(rows))
    return Parentage(np.array(rows, np.int32).reshape(len(rows), -1 if rows else 0), np.array(first, np.int64))


def _is_row(step: object, like: object) -> bool:
    if not isinstance(step, list) or not isinstance(like, list) or len(step) != len(like):
        return False
    return all(type(p) is int and 0 <= p < 1 << 16 for p in step)
