"""Settings to compare, as people write them: the first in full, the others as what they change of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from simkv.comparison.same_memory import BLOCKS, MAX_TOKENS, TOKENS, carried, names_pool, pool_of
from simkv.engine.engines import merge, recorded_engine
from simkv.errors import InputError, SettingsError, SimkvError
from simkv.settings import ENGINES, Settings, parse_value, settings_class
from simkv.workload.workload import Workload

NAMES = "ABCD"
MOST = len(NAMES)
DEFAULT = "default"
GRAMMAR = "name=value,name=value (engine=sglang or just sglang names the engine), a TOML file, or default"
COUNTERPARTS = {"max_num_seqs": "max_running_requests", "max_model_len": "context_length"}
"""vLLM's name of a limit → SGLang's: what A sets of these holds for another engine as well."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One column of a comparison.

    Args:
        name: ``A`` … ``D``.
        label: what people wrote, or that it is the default.
        settings: all settings; a file's recorded ones and, for B to D, those of A are already in them.
        notes: what was carried over from A, one sentence each.
    """

    name: str
    label: str
    settings: Settings
    notes: tuple[str, ...] = ()


def choices(texts: Sequence[str], workload: Workload) -> list[Choice]:
    """Read one to four texts of settings.

    The first is complete by itself: the engine's defaults, the settings recorded in the workload's file, what is written.
    Each other one is the first with what is written changed. With another engine only what both engines know is taken
    over. The KV pool keeps the size in bytes unless a text sizes it itself, so that different block sizes, elements or
    engines stay comparable; ``tokens=32000`` sizes it in tokens whatever the engine calls that.

    Raises:
        SimkvError: an unknown name, a value out of range, too many texts, a TOML file that cannot be read.
    """
    if not 1 <= len(texts) <= MOST:
        raise SettingsError("settings", f"{len(texts)} of them", f"1 to {MOST} settings to compare")
    base = _first(read_text(texts[0]), workload)
    return [Choice(NAMES[0], _label(texts[0]), base), *others(base, texts[1:])]


def others(base: Settings, texts: Sequence[str]) -> list[Choice]:
    """The choices B, C, D out of the settings of A. Raises SimkvError with the side's name in front."""
    found = []
    for name, text in zip(NAMES[1:], texts, strict=False):
        try:
            settings, notes = derived(base, read_text(text))
        except SimkvError as problem:
            raise SimkvError(f"{name}: {problem}") from None
        found.append(Choice(name, _label(text), settings, notes))
    return found


def read_text(text: str) -> dict[str, str | Any]:
    """What a text says, name → value; values of a command line are still texts, those of a TOML file are values.

    Raises:
        InputError: something that is neither name=value nor an engine; a TOML file that is not there or cannot be read.
        SettingsError: a name that stands there twice.
    """
    plain = text.strip()
    if plain in ("", DEFAULT):
        return {}
    if plain.endswith(".toml"):
        return _toml(Path(plain).expanduser())
    out: dict[str, str | Any] = {}
    for part in _parts(plain):
        name, sep, value = part.partition("=")
        key = name.strip().replace("-", "_")
        if not sep and part.strip() in ENGINES:
            key, value = "engine", part
        elif not sep or not key:
            raise InputError(f'"{part.strip()}" is no setting', expected=GRAMMAR)
        if key in out:
            raise SettingsError(key, value.strip(), f"one value; {out[key]} was given before")
        out[key] = value.strip()
    return out


def write_text(changes: Mapping[str, Any]) -> str:
    """The text that ``read_text`` reads back as these changes."""
    if not changes:
        return DEFAULT
    return ",".join(f"{name}={'none' if v is None else str(v).lower() if isinstance(v, bool) else v}" for name, v in changes.items())


def derived(base: Settings, changes: Mapping[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """``base`` with ``changes``, and what was carried over to make it comparable, in sentences.

    Raises:
        SettingsError: see ``choices``.
    """
    kind = settings_class(str(changes.get("engine", base.engine)))
    wanted, tokens = _values(kind, changes)
    start = base.to_mapping() if kind is type(base) else _shared(base, kind)
    made = kind.from_mapping({**start, **wanted})
    if names_pool(wanted):
        return made, ()
    return carried(base, made, tokens, sized_by_gpu="gpu_memory_utilization" in wanted or "mem_fraction_static" in wanted)


def _first(changes: Mapping[str, Any], workload: Workload) -> Settings:
    kind = settings_class(str(changes.get("engine", recorded_engine(workload))))
    wanted, tokens = _values(kind, changes)
    made = kind.from_mapping(wanted)
    if tokens is not None:
        sized = pool_of(made, tokens)
        made, wanted = made.replace(**sized), {**wanted, **sized}
    return merge(made, workload, set(wanted))


def _values(kind: type[Settings], changes: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """The settings among ``changes`` as values, and the pool's size in tokens if that is among them."""
    texts = {f.name for f in fields(kind) if f.type == "str"}
    wanted = {name: value if not isinstance(value, str) or name in texts else parse_value(value) for name, value in changes.items()}
    tokens = wanted.pop(TOKENS, None)
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise SettingsError(TOKENS, tokens, "a whole number of at least 1: tokens of KV memory")
    if tokens is not None and names_pool(wanted):
        raise SettingsError(TOKENS, tokens, "nothing beside the engine's own setting for the size of its pool")
    return wanted, tokens


def _shared(base: Settings, kind: type[Settings]) -> dict[str, Any]:
    """What settings of another engine take over: everything of the same name or with a counterpart that A does not leave open."""
    known = {f.name for f in fields(kind)} - {"engine", "engine_version", BLOCKS, MAX_TOKENS}
    names = {**COUNTERPARTS, **{theirs: ours for ours, theirs in COUNTERPARTS.items()}}
    out = {}
    for name, value in base.changed().items():
        target = name if name in known else names.get(name)
        if target in known and value is not None:
            out[target] = value
    return out


def _parts(text: str) -> list[str]:
    """``text`` cut at commas that stand outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth <= 0:
            parts.append(text[start:i])
            start = i + 1
    return [p for p in (*parts, text[start:]) if p.strip()]


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise InputError(f"no readable settings ({why})", file=str(path), expected="a TOML file with name = value lines") from None


def _label(text: str) -> str:
    plain = text.strip()
    return plain if plain not in ("", DEFAULT) else DEFAULT
