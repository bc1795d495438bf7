"""The same KV memory for settings of different engines, block sizes and element types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from simkv.errors import SettingsError
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.settings import Settings

TOKENS = "tokens"
"""What a text of settings calls the size of the pool, whatever the engine's own name is."""
BLOCKS, MAX_TOKENS = "num_gpu_blocks", "max_total_tokens"


def names_pool(values: Mapping[str, Any]) -> bool:
    """Whether settings size the pool themselves (``none`` too: from model and GPU)."""
    return BLOCKS in values or MAX_TOKENS in values


def tokens_of(settings: Settings) -> int | None:
    """Tokens of KV memory that settings give in figures, a null block or padding page included; ``None``: model and GPU decide."""
    tokens: int | None = getattr(settings, MAX_TOKENS, None)
    blocks: int | None = getattr(settings, BLOCKS, None)
    return tokens if tokens is not None else None if blocks is None else blocks * settings.tokens_per_block


def pool_of(settings: Settings, tokens: int) -> dict[str, int]:
    """The setting that gives the pool ``tokens`` tokens of memory, in the engine's own unit.

    Raises:
        SettingsError: not even two blocks, or one page.
    """
    names = {f.name for f in fields(settings)}
    size = settings.tokens_per_block
    if MAX_TOKENS in names:
        whole = tokens // size * size
        if whole:
            return {MAX_TOKENS: whole}
    elif BLOCKS in names:
        if tokens // size >= 2:
            return {BLOCKS: tokens // size}
    else:
        raise SettingsError(TOKENS, tokens, f"nothing: {settings.engine} has no setting for the size of its pool")
    raise SettingsError(TOKENS, tokens, f"at least {2 * size}: the pool of {settings.engine} is made of blocks of {size} tokens")


def carried(base: Settings, made: Settings, tokens: int | None, *, sized_by_gpu: bool) -> tuple[Settings, tuple[str, ...]]:
    """``made`` with as many bytes of KV memory as ``base`` has, and that in a sentence.

    Args:
        tokens: the size as written for ``made``; then only the unit changes.
        sized_by_gpu: ``made`` says which share of the GPU it takes, so nothing is carried over.
    """
    theirs = tokens_of(base)
    if tokens is not None:
        return made.replace(**pool_of(made, tokens)), ()
    if theirs is None:
        return made, ()
    if sized_by_gpu:
        return made.replace(**dict.fromkeys({f.name for f in fields(made)} & {BLOCKS, MAX_TOKENS}, None)), ()
    if base.engine == made.engine and base.tokens_per_block == made.tokens_per_block and _bytes(base) == _bytes(made):
        return made, ()
    sized = pool_of(made, theirs * _bytes(base) // _bytes(made))
    ((name, value),) = sized.items()
    return made.replace(**sized), (f"{name}={value:,} is the same KV memory as A's {theirs:,} tokens.",)


def _bytes(settings: Settings) -> int:
    return kv_bytes_per_token(settings.model, settings.kv_cache_dtype, settings.tensor_parallel_size)
