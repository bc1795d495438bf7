"""The host tier of our own format: the header's ``offload`` and the requests' ``kv_transfer_params``.

``offload`` names vLLM's extra config beside ``connector`` (native or simple), ``cpu_chunks`` (simple: blocks, the null block
included) and the recorder's ``load_latency`` and ``store_latency`` in steps. ``kv_transfer_params`` may limit a request's
``max_load_tokens`` and ``max_offload_tokens``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.workload.rows import Odd, Row, Where, kind

DEFAULTS: dict[str, Any] = {
    "connector": "native",
    "cpu_chunks": 64,
    "blocks_per_chunk": 1,
    "eviction_policy": "lru",
    "store_threshold": 0,
    "max_tracker_size": 64_000,
    "offload_prompt_only": True,
    "self_describing_kv_events": False,
    "lazy_offload": False,
    "load_latency": 1,
    "store_latency": 1,
}
"""The recorder's defaults."""
NAMES = {"cpu_chunks": "num_chunks", "offload_prompt_only": "prompt_only", "lazy_offload": "lazy"}
LIMITS = ("max_load_tokens", "max_offload_tokens")


def offload_settings(header: Row, file: str) -> dict[str, Any]:
    """The header's ``offload`` as fields of EngineSettings, the recorder's defaults filled in; empty without one."""
    given = header.get("offload")
    if given is None:
        return {}
    where = Where(file, None)
    if not isinstance(given, dict):
        raise where.error(f"the value is {kind(given)}", "offload", "an object with " + ", ".join(DEFAULTS))
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise where.error("nothing known by that name", f"offload.{unknown[0]}", ", ".join(DEFAULTS))
    return {f"kv_offload_{NAMES.get(name, name)}": value for name, value in {**DEFAULTS, **given}.items()}


def transfer_limits(requests: list[Row]) -> dict[str, npt.NDArray[np.int32]]:
    """Columns ``max_load_tokens`` and ``max_offload_tokens`` (-1: no limit); Odd if a value is no whole number from 0."""
    out = {}
    for name in LIMITS:
        column = np.full(len(requests), -1, np.int32)
        for i, request in enumerate(requests):
            params = request.get("kv_transfer_params") or {}
            value = params.get(name)
            if value is not None:
                if type(value) is not int or value < 0:
                    raise Odd
                column[i] = min(value, np.iinfo(np.int32).max)
        out[name] = column
    return out


def check_transfer_params(where: Where, params: Any, name: str) -> Row:
    """One request's ``kv_transfer_params``, or InputError for what is wrong with them."""
    if not isinstance(params, dict):
        raise where.error(f"the value is {kind(params)}", name, "an object with " + " or ".join(LIMITS))
    inner = {f"{name}.{k}": v for k, v in params.items()}
    return {k: where.whole(inner, f"{name}.{k}", low=0) for k in LIMITS if params.get(k) is not None}
