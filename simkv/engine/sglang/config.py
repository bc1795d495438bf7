"""Numbers the engine needs, every setting filled in. Made from SglangSettings, or from a recording's own config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from simkv.errors import SettingsError

POLICY_PARAMETERS = {"protected_threshold": 2, "threshold": 0, "next_prompt_estimate": 0}


@dataclass(frozen=True, slots=True)
class SglangConfig:
    """What decides about KV memory in one SGLang replica.

    Args:
        page_size: tokens per page.
        capacity: tokens of the KV pool (max_total_tokens); pages are ``capacity // page_size``, page 0 is padding beside them.
        max_running_requests: rows of the request table.
        context_length: longest prompt plus output; output is clipped to it at intake.
        max_input_len: prompts of so many tokens or more are refused; ``None`` = none is.
        chunked_prefill_size: tokens of a prefill step; ``None`` = off.
        radix_eviction_policy_config: parameters of slru (protected_threshold) and tlru (threshold, next_prompt_estimate; tokens).
        priority_preemption: running requests are thrown back for much more important ones.
        as_recorded: do what the recording tool's loop does where it differs from the server's: decode rows of a mixed batch enter
            the tree at once.
    """

    page_size: int = 1
    capacity: int = 256
    max_running_requests: int = 64
    context_length: int = 4096
    max_input_len: int | None = None
    schedule_policy: str = "fcfs"
    radix_eviction_policy: str = "lru"
    radix_eviction_policy_config: Mapping[str, int] = field(default_factory=dict)
    chunked_prefill_size: int | None = 8192
    max_prefill_tokens: int = 16384
    prefill_max_requests: int | None = None
    schedule_conservativeness: float = 1.0
    enable_mixed_chunk: bool = False
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    priority_preemption: bool = False
    priority_scheduling_preemption_threshold: int = 10
    retraction_policy: str = "length"
    disable_radix_cache: bool = False
    random_seed: int = 0
    as_recorded: bool = False


RECORDED = {
    "max_context_len": "context_length",
    "eviction_policy": "radix_eviction_policy",
    "eviction_policy_config": "radix_eviction_policy_config",
}
NOT_SETTINGS = {"impl", "snapshots", "kv_events", "max_steps"}


def from_recording(config: Mapping[str, Any]) -> SglangConfig:
    """The configuration of a recorded run: the recording tool's names and defaults. Raises SettingsError for a name it does not have."""
    values = {RECORDED.get(k, k): v for k, v in config.items() if k not in NOT_SETTINGS}
    known = {f.name for f in fields(SglangConfig)}
    for k in values:
        if k not in known:
            raise SettingsError(k, values[k], "a setting of a recorded SGLang run: " + ", ".join(sorted(known)))
    values["radix_eviction_policy_config"] = values.get("radix_eviction_policy_config") or {}
    values["retraction_policy"] = values.get("retraction_policy") or "length"
    return SglangConfig(**values, as_recorded=True)
