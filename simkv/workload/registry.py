"""The one registry of trace formats. A format is recognised by what stands in the file, never by its name.

Reading is lazy: this module needs numpy and the standard library; a reader is imported when its format is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from simkv.errors import InputError
from simkv.workload.shapes import SHAPES, closest
from simkv.workload.source import FILE_LIMIT, UPLOAD_LIMIT, Options, Source
from simkv.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format.

    Args:
        name: what ``--format`` takes.
        title: a line for people.
        module: where ``read(source, options) -> Workload`` stands.
        detect: whether a source looks like this format; may only look at the first object, the header or the document.
        example: a bundled file of this format, if there is one (a key of ``simkv.workload.bundled.bundled()``).
    """

    name: str
    title: str
    module: str
    detect: Callable[[Source], bool]
    example: str | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """What every request of this format has."""
        return SHAPES[self.name].fields

    @property
    def lines(self) -> str:
        """A smallest file of this format."""
        return SHAPES[self.name].lines

    def read(self, source: Source, options: Options) -> Workload:
        """Read a source. Raises InputError for what cannot be used."""
        workload: Workload = import_module(self.module).read(source, options)
        return workload


def _keys(source: Source) -> set[str]:
    first = source.first_object()
    return set(first) if first else set()


def _header(source: Source) -> list[str]:
    line = source.data[:4096].lstrip().split(b"\n")[0]
    return [c.strip().strip('"').lower() for c in line.decode("utf-8", "replace").split(",")]


def _document(source: Source) -> dict[str, Any]:
    """The file as one JSON object; empty if it is JSON lines or anything else."""
    document = source.document() if not source.is_folder else None
    return document if isinstance(document, dict) else {}


def _live(s: Source) -> bool:
    d = _document(s)
    return {"requests", "results"} <= d.keys() and ("mode" in d or "server" in d)


def _golden(s: Source) -> bool:
    d = _document(s)
    if _sglang(s):
        return False
    ours = "config" in d or "time" in d or {"prompt", "output_len"} <= _first_request(d).keys()
    return ("requests" in d and ours and "results" not in d and "hash_id_scope" not in d) or _golden_lines(s)


def _sglang(s: Source) -> bool:
    d = _document(s)
    return isinstance(d.get("ops"), list) or {"rid", "prompt", "output"} <= _first_request(d).keys()


def _first_request(document: dict[str, Any]) -> dict[str, Any]:
    requests = document.get("requests")
    return requests[0] if isinstance(requests, list) and requests and isinstance(requests[0], dict) else {}


def _golden_lines(s: Source) -> bool:
    first, keys = s.first_object(), _keys(s)
    if first is None or "requests" in keys:
        return False
    return isinstance(first.get("config"), dict) or isinstance(first.get("simkv"), (int, str)) or {"prompt", "output_len"} <= keys


def _hash_ids(s: Source, kind: type) -> bool:
    first = s.first_object()
    return first is not None and isinstance(first.get("hash_ids"), kind) and "requests" not in first


def _bailian(s: Source) -> bool:
    return _hash_ids(s, list) and "chat_id" in _keys(s)


def _mooncake(s: Source) -> bool:
    keys = _keys(s)
    return _hash_ids(s, list) and not _bailian(s) and {"timestamp", "input_length"} & keys != set()


def _ragpulse(s: Source) -> bool:
    if s.is_folder and s.path is not None:
        return any(s.path.glob("0_trace.jsonl*"))
    return _hash_ids(s, dict)


def _claude_code(s: Source) -> bool:
    if s.is_folder and s.path is not None:
        return any(s.path.glob("*.json")) or any(s.path.glob("*.json.gz"))
    d = _document(s)
    return "requests" in d and ("hash_id_scope" in d or "block_size" in d) and "config" not in d


def _lmcache(s: Source) -> bool:
    first = s.first_object() or {}
    return isinstance(first.get("input"), str) and "timestamp" in first


def _openai(s: Source) -> bool:
    first = s.first_object() or {}
    bodies = [first, *(first[k] for k in ("body", "request", "request_body", "params", "input") if isinstance(first.get(k), dict))]
    return any(isinstance(b.get("messages"), list) or isinstance(b.get("prompt"), str) for b in bodies)


def _azure(s: Source) -> bool:
    return "contexttokens" in _header(s)


def _burstgpt(s: Source) -> bool:
    return "request tokens" in _header(s)


def _lengths(s: Source) -> bool:
    return {"conv", "turns"} <= _keys(s)


_TRACES = "simkv.workload.traces."
_FORMATS = (
    Format("golden", "simkv workload: JSON or JSON lines with prompts as content runs", "simkv.workload.golden", _golden),
    Format("live", "requests recorded from a running vLLM server", "simkv.workload.live", _live),
    Format("mooncake", "Mooncake: JSON lines with chained block ids", _TRACES + "mooncake", _mooncake, "mooncake_conversation"),
    Format("bailian", "Qwen-Bailian: JSON lines with chat ids and 16-token blocks", _TRACES + "bailian", _bailian),
    Format("ragpulse", "RAGPulse: JSON lines with system prompt, passages, history", _TRACES + "ragpulse", _ragpulse, "ragpulse"),
    Format("claude-code", "Claude Code sessions: one JSON a session", _TRACES + "claude_code", _claude_code, "claude_code"),
    Format("lmcache", "LMCache agent logs: JSON lines with prompt text", _TRACES + "lmcache", _lmcache, "lmcache_taubench"),
    Format("azure", "Azure LLM inference 2023: CSV of times and lengths", _TRACES + "azure", _azure, "azure_code_2023"),
    Format("burstgpt", "BurstGPT: CSV of times and lengths", _TRACES + "burstgpt", _burstgpt),
    Format("sharegpt-lengths", "Chat lengths: JSON lines of turns, no times", _TRACES + "sharegpt_lengths", _lengths, "sharegpt_lengths"),
    Format("openai-log", "OpenAI chat-completions request logs: JSON lines", _TRACES + "openai_log", _openai),
    Format("sglang", "requests recorded from SGLang's scheduler: one JSON with token ids", "simkv.workload.sglang_recording", _sglang),
)


def formats() -> tuple[Format, ...]:
    """Every format, in the order in which they are tried."""
    return _FORMATS


def detect(source: Source) -> Format:
    """The format of a source. Raises InputError naming what was found and the nearest of what is known."""
    for candidate in _FORMATS:
        if candidate.detect(source):
            return candidate
    if near := closest(_fields(source)):
        name, missing = near
        raise InputError(
            f"unknown format: {_seen(source)}",
            file=source.name,
            expected=f"for the nearest format, {name}, the fields {', '.join(SHAPES[name].fields)}",
            hint=(f"Missing: {missing}" if missing else f"All are there, but not as in {name}")
            + ". `simkv formats` shows an example of each",
        )
    raise InputError(
        f"unknown format: {_seen(source)}",
        file=source.name,
        expected="one of " + ", ".join(f.name for f in _FORMATS),
        hint="Name the format if you know it, or convert the file to simkv JSON lines. `simkv formats` shows an example of each",
    )


def read_workload(
    path: str | Path,
    *,
    format: str | None = None,
    limit: int | None = None,
    skip_bad_rows: bool = False,
    tokenizer: str | None = None,
    think: str = "recorded",
    max_bytes: int = FILE_LIMIT,
) -> Workload:
    """Read a trace file (or a folder of session files), gzip or not.

    Args:
        path: the file.
        format: a name from ``formats()``; recognised by content if not given.
        limit: keep the first so many requests by arrival.
        skip_bad_rows: leave out rows that cannot be used and list them in ``Workload.report``.
        tokenizer: path of a ``tokenizer.json`` for formats with prompt text; bytes of UTF-8 if not given.
        think: ``recorded`` times, or ``closed``: a session's next request comes after its last answer (agent sessions).
        max_bytes: most bytes the file may unpack to.

    Raises:
        InputError: the file, line and field that cannot be used, what was expected and what to do.
    """
    options = _options(limit, skip_bad_rows, tokenizer, think, max_bytes)
    return _read(Source.from_path(Path(path), max_bytes), format, options)


def read_bytes(
    data: bytes,
    name: str,
    *,
    format: str | None = None,
    limit: int | None = None,
    skip_bad_rows: bool = False,
    tokenizer: str | None = None,
    think: str = "recorded",
    max_bytes: int = UPLOAD_LIMIT,
) -> Workload:
    """Read an upload; ``name`` is used in messages only. Else as ``read_workload``."""
    options = _options(limit, skip_bad_rows, tokenizer, think, max_bytes)
    label = re.sub(r"[^\w .()+@=-]", "_", name)[-80:] or "upload"
    return _read(Source.from_bytes(data, label, max_bytes), format, options)


def _options(limit: int | None, skip: bool, tokenizer: str | None, think: str, max_bytes: int) -> Options:
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}", field="limit", expected="a whole number of at least 1")
    if think not in ("recorded", "closed"):
        raise InputError(f"think is {think}", field="think", expected="recorded or closed")
    return Options(limit, skip, tokenizer, think, max_bytes)


def _read(source: Source, format: str | None, options: Options) -> Workload:
    if format is None:
        return detect(source).read(source, options)
    for candidate in _FORMATS:
        if candidate.name == format.lower().replace("_", "-"):
            return candidate.read(source, options)
    raise InputError(f"unknown format {format}", file=source.name, expected="one of " + ", ".join(f.name for f in _FORMATS))


def _fields(source: Source) -> list[str]:
    """Names of fields or columns in what is no known format."""
    if source.is_folder:
        return []
    first = source.first_object() or _document(source)
    return [*first, *_first_request(first)] if first else [name for name in _header(source) if name]


def _seen(source: Source) -> str:
    if source.is_folder:
        return "a folder without trace files"
    if source.data[:2] in (b"PK", b"\x28\xb5") or source.data[:3] == b"BZh" or source.data[:4] == b"PAR1":
        return "an archive or a binary file"
    source.text  # noqa: B018 - raises for text that is not UTF-8
    first = source.first_object()
    if first is not None:
        return "the first object has the fields " + ", ".join(sorted(map(str, first))[:12])
    document = source.document()
    if isinstance(document, dict):
        return "the file is one JSON object with the fields " + ", ".join(sorted(map(str, document))[:12])
    if isinstance(document, list):
        return "the file is a JSON list"
    return f'it begins with "{source.text.strip()[:40].splitlines()[0]}"'
