"""Where requests come from: bundled traces, generators, uploads. Reading happens once per source and process."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from simkv.engine.engines import for_engine, overruled
from simkv.errors import InputError
from simkv.settings import settings_from
from simkv.ui.config import Config
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from simkv.workload.transform import stretch, with_salts
from simkv.workload.workload import Workload

TRACES: Mapping[str, tuple[str, str]] = {
    "Mooncake conversation": ("mooncake_conversation", "an hour of a public chat service (Kimi), every prompt's blocks named"),
    "Mooncake synthetic": ("mooncake_synthetic", "mixed long-context traffic, many shared documents"),
    "RAGPulse": ("ragpulse", "a week of questions to a university's RAG assistant"),
    "Claude Code": ("claude_code", "coding-agent sessions: long prompts, each repeating almost all of the one before"),
    "LMCache mini-SWE": ("lmcache_miniswe", "an agent that mends code, real prompt text"),
    "LMCache tau-bench": ("lmcache_taubench", "a customer-service agent, real prompt text"),
    "Azure 2023 code": ("azure_code_2023", "lengths and times only: no content, so nothing can hit"),
    "Azure 2023 chat": ("azure_conv_2023", "lengths and times only: no content, so nothing can hit"),
    "ShareGPT lengths": ("sharegpt_lengths", "lengths of chats without times"),
}
"""Menu title → (name in ``bundled()``, one line about it)."""


def traces() -> dict[str, tuple[str, str]]:
    """The bundled traces that are there, by menu title; one without a title here keeps its own name."""
    there = bundled()
    named = {title: entry for title, entry in TRACES.items() if entry[0] in there}
    known = {entry[0] for entry in named.values()}
    return {**named, **{name: (name, "") for name in there if name not in known}}


@st.cache_resource(show_spinner="Reading the requests", max_entries=8)
def _read(digest: str, _config: Config, _data: bytes | None) -> Workload:
    config = _config
    if config.kind == "generator":
        from simkv.workload.generators import generate

        params = dict(config.params)
        return generate(config.name, seed=int(params.pop("seed", 0)), **params)
    if config.kind == "upload":
        if _data is None:
            raise InputError("the uploaded file is gone", file=config.name, hint="Upload it again")
        options = dict(config.params)
        return read_bytes(
            _data, config.name, format=options.get("format"), limit=config.limit, skip_bad_rows=bool(options.get("skip_bad_rows"))
        )
    there = bundled()
    if config.name not in there:
        raise InputError("this trace is not installed", file=config.name, expected="one of " + ", ".join(there))
    return read_workload(there[config.name], limit=config.limit)


def asked(config: Config, data: bytes | None = None) -> Workload:
    """The requests as asked for: read or made, with their salts and their arrival speed; of the settings they record only
    those that the controls show as well. Raises SimkvError.
    """
    workload = with_salts(workload_of(config, data), config.salts)
    if workload.engine:
        workload, _ = for_engine(workload, config.settings)
        mine, recorded = config.settings.to_mapping(), settings_from(workload.engine).to_mapping() if workload.engine else {}
        workload = overruled(workload, [name for name in workload.engine if mine[name] != recorded[name]])
    return workload if config.speed == 1.0 else stretch(workload, 1 / config.speed)


def workload_of(config: Config, data: bytes | None = None) -> Workload:
    """The requests of a configuration, without its salts.

    Args:
        data: the uploaded bytes, for ``kind == "upload"``.

    Raises:
        SimkvError: what cannot be read or made, as a sentence.
    """
    return _read(config.source_digest, config, data)
