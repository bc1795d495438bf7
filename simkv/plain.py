"""Values as JSON can hold them."""

from __future__ import annotations

import json
import math
from typing import Any


def plain(value: Any) -> Any:
    """``value`` with NaN and infinities as null, numpy numbers as Python's, and everything unknown as its text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return plain(value.item()) if hasattr(value, "item") else str(value)


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON for machines: only finite numbers."""
    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)
