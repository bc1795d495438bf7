"""The engine's controls in the left column: which engine, and its settings over what the source records."""

from __future__ import annotations

from typing import Any

import streamlit as st

from simkv.engine.profiles import profiles
from simkv.hardware import gpus, models
from simkv.settings import ENGINES, EngineSettings, Settings
from simkv.ui import engine_form, sidebar_offload
from simkv.ui import recorded as recorded_settings
from simkv.ui.recorded import with_value

BIND: Any = "query-params"
BLOCK_SIZES = (8, 16, 32, 64, 128, 256, 512, 1072)
"""The last is what hybrid models make of it."""
DEFAULT_UTILIZATION = 0.92
DEFAULT_BLOCKS = 16_384

CONTROLS: dict[str, Any] = {
    "block_size": 16,
    "memory": "GPU",
    "model": EngineSettings().model,
    "gpu": EngineSettings().gpu,
    "tensor_parallel_size": 1,
    "gpu_memory_utilization": DEFAULT_UTILIZATION,
    "num_gpu_blocks": DEFAULT_BLOCKS,
    "max_num_seqs": None,
    "max_num_batched_tokens": None,
    "max_model_len": None,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "policy": "fcfs",
    "watermark": 0.0,
    "engine_version": EngineSettings().engine_version,
    **sidebar_offload.CONTROLS,
}
"""vLLM's controls by name, with what they say before anybody has touched them."""


def draw(source: str, recorded: dict[str, Any]) -> Settings:
    """Draw the choice of engine and its controls.

    Args:
        source: identity of the requests' source.
        recorded: the settings it records, with the name of their engine (default vLLM).

    Raises:
        SettingsError: the settings contradict each other.
    """
    st.subheader("Engine", anchor=False)
    whose = str(recorded.get("engine", "vllm")) if recorded else None
    recorded_settings.take_over_engine(source, whose)
    names = list(ENGINES)
    engine = st.selectbox("engine", names, 0, key="engine", bind=BIND, format_func=lambda n: engine_form.TITLES.get(n, n))
    mine = recorded if whose == engine else {}
    if engine == "vllm":
        return _vllm(source, mine)
    if mine:
        st.caption("This file records settings of its own; the controls show them. What you change wins.")
    return engine_form.draw(str(engine), mine)


def _vllm(source: str, recorded: dict[str, Any]) -> EngineSettings:
    """vLLM's controls over what the source records."""
    recorded_settings.take_over(source, recorded, CONTROLS)
    recorded_settings.draw(recorded, CONTROLS)
    changes: dict[str, Any] = {}
    told = recorded_settings.control_values(recorded, CONTROLS)
    sizes = with_value(BLOCK_SIZES, told.get("block_size"))
    changes["block_size"] = st.select_slider(
        "block_size", sizes, CONTROLS["block_size"], key="block_size", bind=BIND, help="Tokens per KV block (--block-size)."
    )
    changes.update(_memory(told))
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        most = 65536 if name == "max_num_seqs" else 1 << 24
        changes[name] = st.number_input(name, 1, most, CONTROLS[name], key=name, bind=BIND, placeholder="vLLM's default")
    with st.expander("More"):
        changes.update(_more(told))
    with st.expander("Host tier"):
        changes.update(sidebar_offload.draw({name: told[name] for name in sidebar_offload.CONTROLS if name in told}))
    return EngineSettings.from_mapping({**recorded, **changes})


def _memory(told: dict[str, Any]) -> dict[str, Any]:
    memory = st.segmented_control("Memory", ("GPU", "blocks"), default="GPU", required=True, key="memory", bind=BIND, width="stretch")
    changes: dict[str, Any] = {}
    if memory == "GPU":
        names, cards = with_value(tuple(models()), told.get("model")), with_value(tuple(gpus()), told.get("gpu"))
        changes["num_gpu_blocks"] = None
        changes["model"] = st.selectbox("model", names, names.index(CONTROLS["model"]), key="model", bind=BIND)
        changes["gpu"] = st.selectbox("GPU", cards, cards.index(CONTROLS["gpu"]), key="gpu", bind=BIND)
        counts = with_value((1, 2, 4, 8, 16), told.get("tensor_parallel_size"))
        changes["tensor_parallel_size"] = st.select_slider("tensor_parallel_size", counts, 1, key="tensor_parallel_size", bind=BIND)
        asked = told.get("gpu_memory_utilization", DEFAULT_UTILIZATION)
        changes["gpu_memory_utilization"] = st.slider(
            "gpu_memory_utilization",
            min(0.3, asked),
            max(0.98, asked),
            DEFAULT_UTILIZATION,
            0.01,
            key="gpu_memory_utilization",
            bind=BIND,
        )
    else:
        changes["num_gpu_blocks"] = int(
            st.number_input(
                "num_gpu_blocks", 2, 1 << 24, DEFAULT_BLOCKS, 1024, key="num_gpu_blocks", bind=BIND, help="The null block included."
            )
        )
    return changes


def _more(told: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    changes["max_model_len"] = st.number_input(
        "max_model_len",
        1,
        1 << 24,
        None,
        key="max_model_len",
        bind=BIND,
        placeholder="the longest request",
        help="Longer requests are rejected. Memory must hold one request of this length, or vLLM does not start.",
    )
    changes["enable_prefix_caching"] = st.toggle("enable_prefix_caching", True, key="enable_prefix_caching", bind=BIND)
    changes["enable_chunked_prefill"] = st.toggle("enable_chunked_prefill", True, key="enable_chunked_prefill", bind=BIND)
    changes["policy"] = st.segmented_control("policy", ("fcfs", "priority"), default="fcfs", required=True, key="policy", bind=BIND)
    most = max(0.3, told.get("watermark", 0.0))
    changes["watermark"] = st.slider(
        "watermark", 0.0, most, 0.0, 0.01, key="watermark", bind=BIND, help="Share of blocks an admission leaves free."
    )
    versions = with_value(tuple(p.version for p in profiles()), told.get("engine_version"))
    newest = versions.index(EngineSettings().engine_version)
    changes["engine_version"] = st.selectbox("engine_version (vLLM)", versions, newest, key="engine_version", bind=BIND)
    return changes
