"""Where request logs keep the request, the answer, the time and who asked."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from simkv.workload.rows import MAX_LENGTH, Row, Where, kind

BODIES = ("body", "request", "request_body", "params", "input")
REPLIES = ("response", "response_body", "result", "output")
TIME_FIELDS = (
    "timestamp", "time", "ts", "@timestamp", "start_time", "startTime", "started_at", "request_time", "arrival_time",
    "received_at", "created_at", "createdAt", "created", "date",
)  # fmt: skip
TENANT_FIELDS = ("tenant", "tenant_id", "user", "user_id", "end_user", "customer_id", "team_id", "organization_id", "api_key_alias")
SESSION_FIELDS = ("session_id", "session", "conversation_id", "chat_id", "thread_id", "trace_id")
ID_FIELDS = ("request_id", "custom_id", "id")
EXPECTED_TIME = "a time as ISO 8601 or a number of seconds, milliseconds, microseconds or nanoseconds"


@dataclass(slots=True)
class Call:
    """One call of a log, with what was found of it."""

    row: Row
    body: Row
    reply: Row
    where: Where
    time: float | None
    usage: dict[str, int]
    max_tokens: int | None
    priority: int
    prompt: str | list[int] = ""
    answer: str | None = None
    images: int = field(default=0)


def call_of(row: Row, where: Where) -> Call:
    """The parts of a row. Raises InputError if it has no request or a part is not what it should be."""
    body = next((b for b in _objects(row, BODIES) if isinstance(b.get("messages"), list) or "prompt" in b), None)
    if body is None:
        raise where.error("no request in the row", "messages", "messages or prompt, in the row or in its " + ", ".join(BODIES))
    reply = next((r for r in _objects(row, REPLIES) if r.get("choices") or r.get("usage")), {})
    salt = body.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise where.error(f"the value is {kind(salt)}", "cache_salt", "a text")
    usage = reply.get("usage") or row.get("usage") or {}
    if not isinstance(usage, dict):
        raise where.error(f"the value is {kind(usage)}", "usage", "an object with prompt_tokens and completion_tokens")
    counts = {k: where.whole(usage, k) for k in ("prompt_tokens", "completion_tokens") if usage.get(k) is not None}
    most = None
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            most = where.whole(body, name, low=1, high=MAX_LENGTH)
            break
    priority = where.whole(body, "priority", low=-(1 << 31)) if body.get("priority") is not None else 0
    return Call(row, body, reply, where, _time(row, body, reply, where), counts, most, priority)


def _objects(row: Row, names: Sequence[str]) -> list[Row]:
    """The row and the objects under these names, their ``body`` included; JSON texts are opened."""
    out = [row]
    for name in names:
        value = _opened(row.get(name))
        if isinstance(value, dict):
            out.append(value)
            inner = _opened(value.get("body"))
            if isinstance(inner, dict):
                out.append(inner)
    return out


def _opened(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _time(row: Row, body: Row, reply: Row, where: Where) -> float | None:
    holders = [row, *(x for x in (row.get("request"), row.get("metadata")) if isinstance(x, dict)), body]
    for holder in holders:
        for name in TIME_FIELDS:
            if holder.get(name) is not None:
                return seconds(holder[name], name, where)
    return None if reply.get("created") is None else seconds(reply["created"], "created", where)


def seconds(value: Any, name: str, where: Where) -> float:
    """A time as seconds since 1970 (or since the log's start, for small numbers)."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text) if "_" not in text else math.nan
        except ValueError:
            try:
                when = datetime.fromisoformat(text)
            except ValueError:
                raise where.error(f"the value is {kind(value)}", name, EXPECTED_TIME) from None
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e20:
        raise where.error(f"the value is {kind(value)}", name, EXPECTED_TIME)
    for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
        if value < limit:
            return value / unit
    return value / 1e9


def label(row: Row, body: Row, names: Sequence[str]) -> str:
    """The first of these fields that is there, as a text; empty if none is."""
    holders: list[Any] = [row, row.get("metadata"), body, body.get("metadata")]
    for holder in holders:
        for name in names if isinstance(holder, dict) else ():
            value = holder.get(name)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                return str(value)[:200]
    return ""
