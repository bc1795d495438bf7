"""The host tier's controls in the left column: vLLM's kv_offloading_size and the connector's extra config."""

from __future__ import annotations

from typing import Any

import streamlit as st

from simkv.hardware.tables import GB

BIND: Any = "query-params"

CONTROLS: dict[str, Any] = {
    "kv_offloading_size": None,
    "kv_offload_connector": "native",
    "kv_offload_eviction_policy": "lru",
    "kv_offload_blocks_per_chunk": 1,
    "kv_offload_store_threshold": 0,
    "kv_offload_prompt_only": True,
    "kv_offload_lazy": False,
}
"""Controls by name, with what they say before anybody has touched them."""
NATIVE = ("kv_offload_eviction_policy", "kv_offload_blocks_per_chunk", "kv_offload_store_threshold", "kv_offload_prompt_only")


def draw(told: dict[str, Any]) -> dict[str, Any]:
    """Draw the controls and return what they change.

    Args:
        told: what the file of the requests records, by control.
    """
    changes: dict[str, Any] = {}
    size = changes["kv_offloading_size"] = st.number_input(
        "kv_offloading_size (GiB)",
        0.1,
        1e5,
        None,
        key="kv_offloading_size",
        bind=BIND,
        placeholder="no host tier",
        help="Host memory for KV, over all GPUs of the replica. Empty: no host tier. Behaves as in vLLM 0.32.",
    )
    if size is None and not told:
        return changes
    connector = changes["kv_offload_connector"] = st.segmented_control(
        "kv_offload_connector",
        ("native", "simple"),
        default="native",
        required=True,
        key="kv_offload_connector",
        bind=BIND,
        width="stretch",
        help="OffloadingConnector, or SimpleCPUOffloadConnector (VLLM_USE_SIMPLE_KV_OFFLOAD=1).",
    )
    changes.update(_native() if connector == "native" else _simple())
    rate = st.number_input(
        "host link (GB/s per GPU)",
        0.01,
        1e4,
        None,
        key="host_link",
        bind=BIND,
        placeholder="the GPU's PCIe",
        help="10^9 bytes per second and direction that a copy between GPU and host memory reaches.",
    )
    changes["kv_offload_bandwidth"] = None if rate is None else rate * GB
    return changes


def _native() -> dict[str, Any]:
    return {
        "kv_offload_eviction_policy": st.segmented_control(
            "eviction_policy", ("lru", "arc"), default="lru", required=True, key="kv_offload_eviction_policy", bind=BIND, width="stretch"
        ),
        "kv_offload_blocks_per_chunk": st.number_input(
            "blocks_per_chunk",
            1,
            65536,
            1,
            key="kv_offload_blocks_per_chunk",
            bind=BIND,
            help="A hit of less than a chunk counts as nothing.",
        ),
        "kv_offload_store_threshold": st.number_input(
            "store_threshold", 0, 1 << 30, 0, key="kv_offload_store_threshold", bind=BIND, help="Offers from which a chunk is stored."
        ),
        "kv_offload_prompt_only": st.toggle(
            "offload_prompt_only", True, key="kv_offload_prompt_only", bind=BIND, help="Generated tokens are not stored."
        ),
    }


def _simple() -> dict[str, Any]:
    lazy = st.toggle(
        "lazy_offload",
        False,
        key="kv_offload_lazy",
        bind=BIND,
        help="Blocks are stored when they are about to be evicted, not when computed.",
    )
    return {"kv_offload_lazy": lazy}
