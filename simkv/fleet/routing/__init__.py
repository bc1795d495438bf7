"""Routers in front of the replicas, each with the decision rule of the real product. One policy, one file."""

from __future__ import annotations

from simkv.fleet.routing.policy import Candidates, Content, Decision, PolicySettings, RoutingPolicy
from simkv.fleet.routing.registry import make_policy, policy_class, policy_names

__all__ = [
    "Candidates",
    "Content",
    "Decision",
    "PolicySettings",
    "RoutingPolicy",
    "make_policy",
    "policy_class",
    "policy_names",
]
