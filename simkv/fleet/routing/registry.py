"""The policies by name. Each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from simkv.errors import SettingsError
from simkv.fleet.routing.policy import Content, RoutingPolicy

_WHERE: dict[str, str] = {
    "round-robin": "simple:RoundRobin",
    "random": "simple:Random",
    "least-load": "simple:LeastLoad",
    "power-of-two": "simple:PowerOfTwo",
    "session-hash": "session:SessionHashModN",
    "session-ring": "session:SessionRing",
    "sglang-cache-aware": "sglang_cache_aware:SglangCacheAware",
    "sglang-power-of-two": "sglang_power_of_two:SglangPowerOfTwo",
    "sglang-consistent-hashing": "sglang_hashing:SglangConsistentHashing",
    "sglang-manual": "sglang_manual:SglangManual",
    "smg-round-robin": "smg_round_robin:SmgRoundRobin",
    "smg-cache-aware": "smg_cache_aware:SmgCacheAware",
    "smg-power-of-two": "sglang_power_of_two:SmgPowerOfTwo",
    "smg-consistent-hashing": "sglang_hashing:SmgConsistentHashing",
    "smg-prefix-hash": "smg_prefix_hash:SmgPrefixHash",
    "smg-manual": "sglang_manual:SmgManual",
    "vllm-router-cache-aware": "vllm_router_cache_aware:VllmRouterCacheAware",
    "vllm-router-consistent-hash": "vllm_router_sessions:VllmRouterConsistentHash",
    "vllm-router-sticky-least-loaded": "vllm_router_sessions:VllmRouterStickyLeastLoaded",
    "ray-prefix-aware": "ray_prefix_aware:RayPrefixAware",
    "production-stack-roundrobin": "production_stack_simple:ProductionStackRoundRobin",
    "production-stack-session": "production_stack_simple:ProductionStackSession",
    "production-stack-prefixaware": "production_stack_prefix:ProductionStackPrefixAware",
    "production-stack-loadaware": "production_stack_loadaware:ProductionStackLoadAware",
    "llm-d-approx-prefix": "llm_d_approx:LlmDApproxPrefix",
    "llm-d-precise-prefix": "llm_d_precise:LlmDPrecisePrefix",
    "aibrix-prefix-cache": "aibrix:AibrixPrefixCache",
    "dynamo-kv": "dynamo_kv:DynamoKv",
}
"""Name -> ``module:Class`` below simkv/fleet/routing."""


def policy_names() -> list[str]:
    """All policies, simple ones first."""
    return list(_WHERE)


def policy_class(name: str) -> type[RoutingPolicy]:
    """A policy's class.

    Raises:
        SettingsError: no such policy.
    """
    if name not in _WHERE:
        raise SettingsError("router", name, ", ".join(_WHERE))
    module, _, attribute = _WHERE[name].partition(":")
    found: type[RoutingPolicy] = getattr(import_module(f"simkv.fleet.routing.{module}"), attribute)
    return found


def make_policy(name: str, content: Content, workers: int, settings: Mapping[str, Any] | None = None) -> RoutingPolicy:
    """One router process with empty tables.

    Args:
        settings: plain values under the router's own names; the rest is the router's default.

    Raises:
        SettingsError: no such policy, or a setting it does not take.
    """
    cls = policy_class(name)
    return cls(content, workers, cls.Settings.from_mapping(settings or {}))
