"""What the settings of every engine have in common: frozen, validated, from and to plain values.

Every error names the field, the value and the range.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from simkv.errors import SettingsError

KV_CACHE_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")


def setting(default: Any, help: str, **limits: Any) -> Any:
    """A field: its default, one line for people, and ``min`` and ``max`` or ``choices``."""
    return dataclasses.field(default=default, metadata={"help": help, **limits})


def model_setting() -> Any:
    """The field ``model``."""
    return setting("Llama-3.1-8B", "model whose KV and weights fill the GPU (see `simkv models`)")


def gpu_setting() -> Any:
    """The field ``gpu``."""
    return setting("H100-SXM5-80GB", "GPU (see `simkv gpus`)")


def tensor_parallel_setting() -> Any:
    """The field ``tensor_parallel_size``."""
    return setting(1, "GPUs that share one replica", min=1, max=64)


def kv_cache_dtype_setting() -> Any:
    """The field ``kv_cache_dtype``."""
    return setting("auto", "element type of the KV cache", choices=KV_CACHE_DTYPES)


class Validated:
    """Base of frozen dataclasses made of ``setting`` fields: every value is checked, changes make copies."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            _check(f, getattr(self, f.name))
        self.check()

    @property
    def owner(self) -> str:
        """Whose settings these are, for errors."""
        return type(self).__name__

    def check(self) -> None:
        """Refuse combinations that no single field can refuse. Raises SettingsError."""

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Plain values turned into what the fields hold."""
        return values

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed, validated again."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise SettingsError(name, changes[name], f"a setting of {self.owner}: " + ", ".join(sorted(known)))
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain values (JSON, TOML, URL)."""
        return cls().replace(**cls.prepared(dict(values)))

    def with_pairs(self, pairs: list[str]) -> Self:
        """Apply ``name=value`` texts as given on a command line or in a URL."""
        names = {f.name for f in dataclasses.fields(self) if f.type == "str"}
        changes: dict[str, Any] = {}
        for pair in pairs:
            name, sep, text = pair.partition("=")
            if not sep:
                raise SettingsError(pair, "", "name=value, for example block_size=32")
            field, given = name.strip().replace("-", "_"), text.strip()
            changes[field] = given if field in names else parse_value(given)  # the release 0.10 is no number
        return self.from_mapping({**self.to_mapping(), **changes})

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, ready for JSON or TOML."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def changed(self) -> dict[str, Any]:
        """Only what differs from the defaults: what a link or a bundle needs to carry."""
        base, mine = type(self)().to_mapping(), self.to_mapping()
        return {k: v for k, v in mine.items() if v != base[k]}


class Settings(Validated):
    """Base of the settings of one engine replica. Subclasses are frozen dataclasses; ``None`` means the engine's own default."""

    __slots__ = ()
    engine: str
    engine_version: str
    model: str
    gpu: str
    tensor_parallel_size: int
    kv_cache_dtype: str

    @property
    def owner(self) -> str:
        """The engine."""
        return self.engine

    @property
    def tokens_per_block(self) -> int:
        """Tokens per block (SGLang: page)."""
        return int(getattr(self, "block_size", 1))

    @property
    def compiled_as(self) -> str:
        """Which compiled code these settings need: the engine, or a specialisation of it that is compiled by itself."""
        return self.engine

    def with_pool(self, blocks: int) -> Self | None:
        """A copy with caching on and a pool of so many blocks; ``None`` for an engine that never keeps finished content."""
        return None


def parse_value(text: str) -> Any:
    """A setting's text as a value: ``16``, ``0.9``, ``true``, ``none``, a TOML array, else the text itself."""
    low = text.lower()
    if low in ("none", "null", "auto-default", ""):
        return None
    if low in ("true", "false", "on", "off", "yes", "no"):
        return low in ("true", "on", "yes")
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "tuple": (tuple,),
    "Mapping": (Mapping,),
}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a name",
    "tuple": "a list",
    "Mapping": "a table of names and values",
}


def _check(f: dataclasses.Field[Any], value: Any) -> None:
    meta, declared = f.metadata, str(f.type)
    if value is None and "None" in declared:
        return
    base = declared.split(" ")[0].split("[")[0]
    types = _TYPES[base]
    low, high, choices = meta.get("min"), meta.get("max"), meta.get("choices")
    words = _WORDS[base]
    allowed = ", ".join(choices) if choices else f"{words} from {low} to {high}" if low is not None and high is not None else words
    right_type = isinstance(value, types) and not (isinstance(value, bool) and bool not in types)
    if not right_type or (isinstance(value, float) and not math.isfinite(value)):
        raise SettingsError(f.name, value, allowed)
    if choices and value not in choices:
        raise SettingsError(f.name, value, allowed)
    if low is not None and not low <= value <= high:
        raise SettingsError(f.name, value, allowed)
