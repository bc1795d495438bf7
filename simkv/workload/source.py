"""A trace file's bytes on their way to a reader: unpacked within a limit, decoded, and parsed once.

What can be wrong with any file, whatever its format, is found here: gzip that ends early or unpacks to more than
allowed, a Git LFS pointer instead of the data, an empty file, an encoding that is not UTF-8, broken JSON.
"""

from __future__ import annotations

import gc
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simkv.errors import InputError

UPLOAD_LIMIT = 256 << 20
"""Bytes an upload may unpack to, unless the caller says otherwise."""
FILE_LIMIT = 4 << 30
"""The same for a file on disk."""
LFS_POINTER = b"version https://git-lfs"
_MISSING = object()


@contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage collection while many small objects are made: parsing takes a third less."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked of a reader.

    Args:
        limit: keep the first so many requests by arrival; ``None`` keeps all.
        skip_bad_rows: drop rows that cannot be used and report them, instead of stopping at the first.
        tokenizer: path of a ``tokenizer.json``, or ``None`` for one token per byte of UTF-8 (text formats only).
        think: how agent sessions are paced: ``recorded`` times or ``closed`` loop (formats with sessions only).
        max_bytes: most bytes a file may unpack to.
    """

    limit: int | None = None
    skip_bad_rows: bool = False
    tokenizer: str | None = None
    think: str = "recorded"
    max_bytes: int = FILE_LIMIT


@dataclass(slots=True)
class Source:
    """One file (or a folder: then ``data`` is empty) with what has been parsed of it so far."""

    name: str
    data: bytes
    path: Path | None = None
    _text: str | None = field(default=None, repr=False)
    _document: Any = field(default=_MISSING, repr=False)
    _first: Any = field(default=_MISSING, repr=False)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, max_bytes: int, path: Path | None = None) -> Source:
        """Unpack and check ``data``. Raises InputError for anything that is not a readable text file."""
        raw = unpack(data, name, max_bytes)
        if raw.startswith(LFS_POINTER):
            raise InputError(
                "this is a Git LFS pointer, not the data",
                file=name,
                line=1,
                expected="the trace itself",
                hint="Run `git lfs pull` where the file comes from, or download the file itself",
            )
        if raw.startswith(b"\xef\xbb\xbf"):
            raw = raw[3:]
        if not raw.strip():
            raise InputError("the file is empty", file=name, expected="at least one request", hint="Check that the download finished")
        return cls(name, raw, path)

    @classmethod
    def from_path(cls, path: Path, max_bytes: int) -> Source:
        """Read a file; a folder is passed on as it is."""
        if path.is_dir():
            return cls(path.name or str(path), b"", path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise InputError("no such file", file=str(path), hint="Check the path; `simkv traces` lists the bundled ones") from None
        except OSError as e:
            raise InputError(f"cannot be read ({e.strerror or type(e).__name__})", file=str(path)) from None
        return cls.from_bytes(data, path.name, max_bytes, path)

    @property
    def is_folder(self) -> bool:
        return self.path is not None and not self.data

    @property
    def text(self) -> str:
        """The file as text. Raises InputError with the line of the first byte that is not UTF-8."""
        if self._text is None:
            try:
                self._text = self.data.decode()
            except UnicodeDecodeError as e:
                utf16 = self.data[:2] in (b"\xff\xfe", b"\xfe\xff")
                raise InputError(
                    "the file is UTF-16 text" if utf16 else f"byte 0x{self.data[e.start]:02x} is not UTF-8 text",
                    file=self.name,
                    line=self.data.count(b"\n", 0, e.start) + 1,
                    expected="a text file in UTF-8",
                    hint="Save it as UTF-8, or unpack it first if it is an archive",
                ) from None
        return self._text

    def lines(self) -> Iterator[tuple[int, str]]:
        """``(1-based line number, text)`` of every line that is not blank."""
        for number, line in enumerate(self.text.split("\n"), 1):
            if line.strip():
                yield number, line

    def first_object(self) -> dict[str, Any] | None:
        """The first JSON object that stands on a line of its own (of the first 20 such lines), for detection."""
        if self._first is _MISSING:
            self._first = None
            for count, line in enumerate(self.data.split(b"\n", 60)[:60]):
                if count >= 20 or not line.strip().startswith(b"{"):
                    continue
                try:
                    with gc_paused():
                        value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    self._first = value
                    if len(line) >= len(self.data.rstrip()):
                        self._document = value
                    break
        return self._first  # type: ignore[no-any-return]

    def document(self) -> Any:
        """The whole file as one JSON value, or ``None`` if it is not one (JSON lines, CSV, broken JSON)."""
        if self._document is _MISSING:
            self._document = None
            head = self.data[:64].lstrip()[:1]
            if head in (b"{", b"[") and (head == b"[" or self.first_object() is None or self._document is None):
                try:
                    with gc_paused():
                        self._document = json.loads(self.text)
                except (ValueError, RecursionError):
                    self._document = None
        return self._document

    def parsed(self) -> Any:
        """The whole file as one JSON value. Raises InputError with the line where it stops being JSON."""
        if (document := self.document()) is None:
            try:
                with gc_paused():
                    return json.loads(self.text)
            except (ValueError, RecursionError) as e:
                raise broken_json(e, self.text, self.name, 1) from None
        return document


def unpack(data: bytes, name: str, max_bytes: int) -> bytes:
    """Gzip members unpacked, at most ``max_bytes``; other data as it is. Raises InputError on damage or excess."""
    out = [data]
    if data[:2] == b"\x1f\x8b":
        out, left, rest = [], max_bytes, data
        while rest.startswith(b"\x1f\x8b"):
            member = zlib.decompressobj(31)
            try:
                part = member.decompress(rest, left + 1)
            except zlib.error as e:
                raise InputError(f"the gzip data is damaged ({e})", file=name, hint="Download the file again") from None
            out.append(part)
            left -= len(part)
            if left < 0:
                break
            if not member.eof:
                raise InputError("the gzip file ends early", file=name, expected="a complete gzip file", hint="Download the file again")
            rest = member.unused_data.lstrip(b"\0")
    size = sum(map(len, out))
    if size > max_bytes:
        raise InputError(
            f"the file is larger than {max_bytes >> 20} MiB" + (" once unpacked" if out[0] is not data else ""),
            file=name,
            expected=f"at most {max_bytes:,} bytes",
            hint="Use a shorter piece of it, or raise max_bytes",
        )
    return out[0] if len(out) == 1 else b"".join(out)


def broken_json(error: ValueError | RecursionError, text: str, name: str, line: int, what: str = "a JSON object") -> InputError:
    """The InputError for a JSON text (starting at ``line``) that does not parse."""
    if isinstance(error, json.JSONDecodeError):
        at = text[error.pos : error.pos + 20].split("\n")[0]
        found = f"not JSON: {error.msg} at column {error.colno}" + (f' before "{at}"' if at.strip() else "")
        return InputError(found, file=name, line=line + error.lineno - 1, expected=what)
    return InputError("not JSON that can be read: nested too deeply or a number too long", file=name, line=line, expected=what)
