"""SGLang's settings, under SGLang's names (0.5.23, python/sglang/srt/arg_groups/fields/)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simkv.errors import SettingsError
from simkv.settings.base import (
    Settings,
    gpu_setting,
    kv_cache_dtype_setting,
    model_setting,
    setting,
    tensor_parallel_setting,
)

SCHEDULE_POLICIES = ("fcfs", "lpm", "random", "dfs-weight", "lof", "priority", "routing-key", "hrrn", "shortest-prefill-first")
EVICTION_POLICIES = ("lru", "lfu", "slru", "priority", "tlru", "fifo", "filo", "mru")
"""The last three have no command-line choice in 0.5.23; their classes exist and run."""
POLICY_PARAMETERS = {"slru": ("protected_threshold",), "tlru": ("threshold", "next_prompt_estimate")}


@dataclass(frozen=True, slots=True)
class SglangSettings(Settings):
    """Settings of one SGLang replica. ``None`` means SGLang's own default for the model, GPU and workload."""

    engine: str = setting("sglang", "engine whose decisions are replayed", choices=("sglang",))
    engine_version: str = setting("0.5.23", "behaviour of this engine release", choices=("0.5.23",))
    page_size: int = setting(1, "tokens per page of the KV pool and of the radix tree", min=1, max=65536)
    max_total_tokens: int | None = setting(
        None, "tokens in the KV pool; computed from model, GPU and mem_fraction_static if not given", min=1, max=1 << 30
    )
    mem_fraction_static: float | None = setting(
        None, "share of GPU memory for weights and KV pool; SGLang's default depends on the GPU", min=0.01, max=1.0
    )
    model: str = model_setting()
    gpu: str = gpu_setting()
    tensor_parallel_size: int = tensor_parallel_setting()
    kv_cache_dtype: str = kv_cache_dtype_setting()
    context_length: int | None = setting(
        None, "longest prompt plus output; default: the longest request of the workload", min=1, max=1 << 24
    )
    max_running_requests: int | None = setting(
        None, "requests that may run at once; SGLang's default depends on pool and context", min=1, max=65536
    )
    chunked_prefill_size: int | None = setting(
        None, "most tokens of one prefill step; -1 = off; SGLang's default depends on the GPU", min=-1, max=1 << 24
    )
    max_prefill_tokens: int = setting(16384, "prompt tokens of one prefill batch, at least context_length", min=1, max=1 << 24)
    schedule_policy: str = setting("fcfs", "order of the waiting queue", choices=SCHEDULE_POLICIES)
    schedule_conservativeness: float = setting(1.0, "how much memory running requests are expected to need still", min=0.0, max=100.0)
    enable_mixed_chunk: bool = setting(False, "decode steps ride along with a prefill chunk")
    enable_priority_scheduling: bool = setting(False, "order the queue by priority first")
    schedule_low_priority_values_first: bool = setting(False, "a smaller number is the more important")
    disable_priority_preemption: bool = setting(False, "more important requests wait instead of throwing running ones back")
    priority_scheduling_preemption_threshold: int = setting(10, "priority difference that is worth a preemption", min=0, max=1 << 30)
    retraction_policy: str = setting("length", "who is thrown back when decoding runs out of memory", choices=("length", "priority"))
    disable_radix_cache: bool = setting(False, "no prefix caching")
    radix_eviction_policy: str = setting("lru", "which leaf of the radix tree is evicted first", choices=EVICTION_POLICIES)
    radix_eviction_policy_config: str | None = setting(
        None, "its parameters as a JSON object: slru protected_threshold; tlru threshold, next_prompt_estimate (tokens)"
    )
    random_seed: int | None = setting(None, "seed of schedule_policy=random", min=0, max=(1 << 62))

    @property
    def tokens_per_block(self) -> int:
        """Tokens per page."""
        return self.page_size

    def with_pool(self, blocks: int) -> SglangSettings:
        """A copy with the radix cache on and so many pages, the padding page included."""
        return self.replace(max_total_tokens=(blocks - 1) * self.page_size, disable_radix_cache=False)

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A mapping given for radix_eviction_policy_config becomes its JSON text."""
        given = values.get("radix_eviction_policy_config")
        if isinstance(given, Mapping):
            values["radix_eviction_policy_config"] = json.dumps(dict(given), sort_keys=True)
        return values

    def check(self) -> None:
        """What SGLang refuses of combinations."""
        if self.chunked_prefill_size == 0:
            raise SettingsError("chunked_prefill_size", 0, "-1 (off) or at least 1")
        if self.max_total_tokens is not None and self.max_total_tokens < self.page_size:
            raise SettingsError("max_total_tokens", self.max_total_tokens, f"at least one page of {self.page_size} tokens")
        if self.schedule_policy == "priority":
            raise SettingsError(
                "schedule_policy",
                "priority",
                "another policy: SGLang 0.5.23 takes this name and stops",
                "Set enable_priority_scheduling=true",
            )
        self.policy_parameters()

    def policy_parameters(self) -> dict[str, int]:
        """``radix_eviction_policy_config`` as numbers. Raises SettingsError for a parameter the policy does not have."""
        text, name = self.radix_eviction_policy_config, "radix_eviction_policy_config"
        if not text:
            return {}
        known = POLICY_PARAMETERS.get(self.radix_eviction_policy, ())
        allowed = f"a JSON object with {', '.join(known)}" if known else f"nothing: {self.radix_eviction_policy} has no parameters"
        try:
            given = json.loads(text)
        except ValueError:
            raise SettingsError(name, text, allowed) from None
        if not isinstance(given, dict) or not given.keys() <= set(known):
            raise SettingsError(name, text, allowed)
        if any(type(v) is not int or not 0 <= v < 1 << 40 for v in given.values()):
            raise SettingsError(name, text, allowed + ", whole numbers of at least 0")
        return given
