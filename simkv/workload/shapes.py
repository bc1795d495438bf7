"""What each trace format looks like: the fields that make it one and an example; and which format a stranger resembles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

ALIKE = 0.75
"""Similarity (difflib) from which one field name passes for a slip of another: arrival for arrive."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a file of one format looks.

    Args:
        fields: what every request has (of the formats that are one object: what that object has).
        lines: a smallest file of this format, one or two lines long.
    """

    fields: tuple[str, ...]
    lines: str


SHAPES = {
    "golden": Shape(
        ("id", "arrive", "prompt", "output_len"),
        '{"simkv": 1, "time": {"mode": "seconds"}}\n{"id": "a", "arrive": 0.5, "prompt": [{"seed": 1, "n": 400}], "output_len": 20}',
    ),
    "live": Shape(
        ("server", "mode", "requests", "results"),
        '{"server": {"vllm": "0.32.0", "block_size": 16, "num_gpu_blocks": 257}, "mode": "sequential",'
        ' "requests": [{"i": 0, "prompt": [5, 6, 7], "max_tokens": 4}], "results": [{"i": 0, "sent": 100.0, "done": 100.5,'
        ' "prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 0}]}',
    ),
    "sglang": Shape(
        ("rid", "prompt", "output"),
        '{"config": {"capacity": 512}, "requests": [{"rid": "a", "arrive": 0, "prompt": [5, 6, 7], "output": [8, 9]}]}',
    ),
    "mooncake": Shape(
        ("timestamp", "input_length", "output_length", "hash_ids"),
        '{"timestamp": 2500, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 2]}',
    ),
    "bailian": Shape(
        ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "type", "turn", "hash_ids"),
        '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 3, "type": "text", "turn": 1,'
        ' "hash_ids": [1, 2, 3]}',
    ),
    "ragpulse": Shape(
        ("timestamp", "input_length", "output_length", "hash_ids", "session_id"),
        '{"timestamp": "82", "input_length": 3112, "output_length": 192, "hash_ids": {"sys_prompt": [8302], "passages_ids": [7398, 7370],'
        ' "history": [], "web_search": [], "user_input": [26923]}, "session_id": "s"}',
    ),
    "claude-code": Shape(
        ("id", "block_size", "hash_id_scope", "tool_tokens", "system_tokens", "requests"),
        '{"id": "trace_1", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 10, "system_tokens": 5,'
        ' "requests": [{"t": 0.0, "type": "n", "in": 130, "out": 10, "hash_ids": [1, 2], "api_time": 2.0, "think_time": 0.0}]}',
    ),
    "lmcache": Shape(
        ("timestamp", "session_id", "input", "output"),
        '{"timestamp": 1760000000000000, "session_id": "a", "input": "You are an agent.", "output": "Fine."}',
    ),
    "azure": Shape(
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10",
    ),
    "burstgpt": Shape(
        ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log",
    ),
    "sharegpt-lengths": Shape(("conv", "turns"), '{"conv": 0, "turns": [["human", 9], ["gpt", 20]]}'),
    "openai-log": Shape(
        ("timestamp", "messages"),
        '{"timestamp": "2026-05-01T10:00:00Z", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}',
    ),
}
"""By name of the format."""


def closest(found: Iterable[str]) -> tuple[str, str] | None:
    """``(format, what is missing)`` for the format most of whose fields are among ``found``; ``None`` if none is near.

    A field under a similar name (``arrival`` for ``arrive``) counts half. Near is: more than half of the fields.
    """
    names = [str(name) for name in found]
    plain = {_plain(name): name for name in names}
    best, missing = ("", 0.0), ""
    for format, shape in SHAPES.items():
        lacks, score = [], 0.0
        for field in shape.fields:
            if _plain(field) in plain and (field in names or plain[_plain(field)].lower() == field.lower()):
                score += 1
            elif slip := _alike(field, plain):
                score += 0.5
                lacks.append(f"{field} (here {slip[:40]}?)")
            else:
                lacks.append(field)
        if score / len(shape.fields) > max(best[1], 0.5):
            best, missing = (format, score / len(shape.fields)), " and ".join(filter(None, (", ".join(lacks[:-1]), *lacks[-1:])))
    return (best[0], missing) if best[0] else None


def _alike(field: str, plain: dict[str, str]) -> str | None:
    ratio = {name: SequenceMatcher(None, _plain(field), key).ratio() for key, name in plain.items()}
    name = max(ratio, key=lambda n: ratio[n], default=None)
    return name if name is not None and ratio[name] >= ALIKE else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
