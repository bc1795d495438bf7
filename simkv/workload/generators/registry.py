"""All generators by name."""

from __future__ import annotations

import difflib
from typing import Any

from simkv.errors import SettingsError
from simkv.workload.generators import (
    adapters_and_images,
    agents_with_pauses,
    chat_and_batch_job,
    few_shot_branching,
    growing_tenants,
    long_document_qa,
    multi_turn_chat,
    open_ended,
    prompt_template,
    rag_shuffled,
    rag_static_context,
    shared_system_prompt,
)
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import Generator
from simkv.workload.transform import noted, with_salts
from simkv.workload.workload import Workload

_MODULES = (
    shared_system_prompt,
    multi_turn_chat,
    rag_static_context,
    rag_shuffled,
    few_shot_branching,
    long_document_qa,
    open_ended,
    agents_with_pauses,
    growing_tenants,
    prompt_template,
    adapters_and_images,
    chat_and_batch_job,
)
_GENERATORS: dict[str, Generator] = {m.GENERATOR.name: m.GENERATOR for m in _MODULES}
LARGEST_SEED = 2**63 - 1


def generators() -> tuple[Generator, ...]:
    """Every generator, in the order of a menu."""
    return tuple(_GENERATORS.values())


def find_generator(name: str) -> Generator:
    """One generator by name. Raises ``SettingsError`` with the nearest name if there is none."""
    if name in _GENERATORS:
        return _GENERATORS[name]
    near = difflib.get_close_matches(name, _GENERATORS, n=1, cutoff=0.4)
    raise SettingsError("generator", name, ", ".join(_GENERATORS), f"Did you mean {near[0]}?" if near else None)


def generate(name: str, *, seed: int = 0, **params: Any) -> Workload:
    """Traffic of one kind; the same name, seed and parameters give the same arrays on every machine.

    Raises:
        SettingsError: unknown generator or parameter, or a value outside its range.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise SettingsError("seed", seed, "a whole number from 0 to 2^63 - 1")
    generator = find_generator(name)
    values = generator.values(params)
    made = with_salts(generator.make(Draws(seed), values), values["salts"])
    told = ", ".join(f"{k}={v}" for k, v in params.items())
    return noted(made, f"Generated: {name}, seed {seed}{', ' + told if told else ''}.")
