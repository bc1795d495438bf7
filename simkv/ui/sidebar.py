"""The left column: which requests, which engine settings. Every control is bound to the page's address."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import streamlit as st

from simkv.errors import SimkvError
from simkv.settings import EngineSettings
from simkv.ui import engine_controls, sources
from simkv.ui.config import SALTS, SPEEDS, Config
from simkv.ui.fleet import form
from simkv.workload.registry import formats
from simkv.workload.workload import Workload

BIND: Any = "query-params"
KINDS = ("Trace", "Generator", "Upload")
LIMITS = ("100", "250", "500", "1000", "2000", "4000", "8000", "all")
UPLOAD_TYPES = ["jsonl", "json", "csv", "gz", "txt"]
MAX_UPLOAD_MB = 200

DEFAULT_TRACE = "Claude Code"
DEFAULT_LIMIT = "250"
DEFAULT_GENERATOR_REQUESTS = 1_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the sidebar says: a configuration and the uploaded bytes, or nothing yet (no file uploaded)."""

    config: Config | None
    data: bytes | None = None


def opening() -> Config:
    """What the controls say before anybody has touched them."""
    base = EngineSettings()
    settings = base.replace(block_size=16, gpu_memory_utilization=engine_controls.DEFAULT_UTILIZATION, tensor_parallel_size=1)
    return Config("trace", sources.TRACES[DEFAULT_TRACE][0], limit=int(DEFAULT_LIMIT), settings=settings)


def draw() -> Chosen:
    """Draw the sidebar. Raises SettingsError if the settings contradict each other."""
    st.subheader("Traffic", anchor=False)
    kind = st.segmented_control(
        "Source", KINDS, default="Trace", required=True, key="source", bind=BIND, label_visibility="collapsed", width="stretch"
    )
    if kind == "Generator":
        base, data = _generator()
    elif kind == "Upload":
        base, data = _upload()
    else:
        base, data = _trace()
    workload = _read(base, data)
    salts = st.selectbox(
        "cache_salt",
        _salts(workload),
        key="salts",
        bind=BIND,
        help="A salt is part of the first block's hash: requests with different salts share nothing.",
    )
    speed = st.select_slider(
        "arrival speed", list(SPEEDS), "1×", key="speed", bind=BIND, help="The same requests, coming faster or slower than recorded."
    )
    recorded = dict(workload.engine) if workload is not None else {}
    settings = engine_controls.draw(f"{base.kind} {base.name} {base.content}" if base else "", recorded)
    faster = SPEEDS[str(speed)]
    fleet = form.draw(workload.duration_s / faster if workload is not None else 0.0)
    if base is None:
        return Chosen(None)
    return Chosen(dataclasses.replace(base, salts=SALTS[str(salts)], speed=faster, settings=settings, fleet=fleet), data)


def _read(base: Config | None, data: bytes | None) -> Workload | None:
    """The requests chosen so far; ``None`` if there are none or they cannot be read, which the page says later."""
    try:
        return sources.workload_of(base, data) if base is not None else None
    except SimkvError:
        return None


def _salts(workload: Workload | None) -> list[str]:
    """The salt policies for which the source knows enough."""
    unknown = set()
    if workload is not None:
        unknown = {name for name, of in (("per tenant", workload.tenant), ("per session", workload.session)) if of is None}
    return [name for name in SALTS if name not in unknown]


def _limit() -> int | None:
    chosen = st.selectbox(
        "Requests", LIMITS, LIMITS.index(DEFAULT_LIMIT), key="limit", bind=BIND, help="The first so many, in order of arrival."
    )
    return None if chosen in (None, "all") else int(chosen)


def _trace() -> tuple[Config | None, bytes | None]:
    there = sources.traces()
    titles = list(there)
    title = st.selectbox(
        "Trace",
        titles,
        titles.index(DEFAULT_TRACE) if DEFAULT_TRACE in there else 0,
        key="trace",
        bind=BIND,
        help="Real traffic that comes with simkv.",
    )
    name, about = there[str(title)] if title else ("", "")
    if about:
        st.caption(about[0].upper() + about[1:] + ".")
    return Config("trace", name, limit=_limit()), None


def _generator() -> tuple[Config | None, bytes | None]:
    from simkv.workload.generators import generators

    known = {g.title: g for g in generators()}
    chosen = known[str(st.selectbox("Generator", list(known), key="generator", bind=BIND))]
    st.caption(chosen.story)
    params: dict[str, Any] = {}
    own = [p for p in chosen.params if p.name not in _COMMON]
    for p in [*own, *(p for p in chosen.params if p.name in ("requests", "rate"))]:
        params[p.name] = _param(chosen.name, p)
    with st.expander("Arrivals and seed"):
        for p in chosen.params:
            if p.name in _COMMON and p.name not in ("requests", "rate", "salts"):
                params[p.name] = _param(chosen.name, p)
        params["seed"] = int(st.number_input("seed", 0, 2**31 - 1, 0, key="seed", bind=BIND))
    return Config("generator", chosen.name, tuple(sorted(params.items()))), None


_COMMON = frozenset(("requests", "rate", "arrivals", "cv", "period_s", "swing", "users", "think_s", "length_cv", "salts"))


def _param(generator: str, p: Any) -> Any:
    label, key = p.name.replace("_", " "), f"{generator}.{p.name}"
    if p.choices:
        return st.selectbox(label, p.choices, p.choices.index(p.default), key=key, bind=BIND, help=p.help)
    if isinstance(p.default, int):
        value = DEFAULT_GENERATOR_REQUESTS if p.name == "requests" else p.default
        return int(st.number_input(label, int(p.low), int(p.high), value, key=key, bind=BIND, help=p.help))
    return float(st.number_input(label, float(p.low), float(p.high), float(p.default), key=key, bind=BIND, help=p.help))


def _upload() -> tuple[Config | None, bytes | None]:
    file = st.file_uploader(
        "Trace file",
        type=UPLOAD_TYPES,
        key="upload",
        max_upload_size=MAX_UPLOAD_MB,
        help="Mooncake, Azure, BurstGPT, Qwen-Bailian, RAGPulse, LMCache or Claude Code logs, OpenAI request logs, simkv's JSON; "
        "gzip is fine. The format is recognised by content. "
        "Text is split into bytes here; for a real tokenizer use `simkv replay --tokenizer`.",
    )
    names = {"auto": "recognised by content", **{f.name: f.title for f in formats()}}
    chosen = st.selectbox("Format", list(names), key="format", bind=BIND, format_func=lambda n: n if n != "auto" else f"auto: {names[n]}")
    if chosen != "auto":
        st.caption(names[str(chosen)] + ".")
    skip = st.toggle("Skip bad rows", False, key="skip_bad_rows", bind=BIND, help="They are counted and listed, not dropped silently.")
    limit = _limit()
    if file is None:
        return None, None
    data = file.getvalue()
    content = hashlib.sha256(data).hexdigest()[:20]
    return Config("upload", file.name, (("format", None if chosen == "auto" else chosen), ("skip_bad_rows", skip)), content, limit), data
