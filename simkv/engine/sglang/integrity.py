"""check_integrity(): everything that must hold of a replica between two turns. For tests and debugging."""

from __future__ import annotations

from typing import Any


def check_integrity(e: Any, cfg: Any, c: Any) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself."""
