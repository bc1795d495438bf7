"""Settings of a fleet: how many replicas, what stands in front of them, and what happens to them while they run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simkv.errors import SettingsError
from simkv.settings.base import Validated, setting

OPERATIONS = ("deploy", "fail", "add", "remove")
MOST_REPLICAS = 1024


@dataclass(frozen=True, slots=True)
class Operation(Validated):
    """Something that is done to replicas, or happens to them."""

    kind: str = setting("deploy", "what happens", choices=OPERATIONS)
    at: float = setting(0.0, "when, in seconds of simulated time", min=0.0, max=1e12)
    replica: int | None = setting(
        None, "which replica (fail, remove; deploy: only this one, else all in turn)", min=0, max=MOST_REPLICAS - 1
    )
    drain: bool = setting(True, "deploy, remove: take no new requests and finish the running ones first; else they are sent elsewhere")
    drain_timeout_s: float = setting(600.0, "seconds after which draining ends by killing", min=0.0, max=1e9)
    startup_s: float = setting(60.0, "seconds from the start of a process until it answers", min=0.0, max=1e9)
    batch: int = setting(1, "deploy: replicas that are exchanged at a time", min=1, max=MOST_REPLICAS)
    warm: int = setting(0, "deploy, add, fail: prefixes computed before the replica takes traffic, most reused first", min=0, max=1000)
    count: int = setting(1, "add: how many replicas", min=1, max=MOST_REPLICAS)
    down_s: float | None = setting(None, "fail: seconds until it is started again (none: never)", min=0.0, max=1e9)

    def check(self) -> None:
        """``fail`` and ``remove`` name a replica."""
        if self.kind in ("fail", "remove") and self.replica is None:
            raise SettingsError("operations.replica", None, f"the number of a replica for {self.kind}")


@dataclass(frozen=True, slots=True)
class FleetSettings(Validated):
    """A fleet of replicas behind routers. Replicas are numbered from 0; one that ``add`` brings gets the next number."""

    replicas: int = setting(1, "replicas at the start", min=1, max=MOST_REPLICAS)
    router: str = setting("round-robin", "policy that chooses a replica for each request (see `simkv routers`)")
    router_settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"help": "the policy's own settings, under the router's names"}
    )
    routers: int = setting(1, "router processes, each with its own tables and counts", min=1, max=256)
    spread: str = setting("round-robin", "how requests come to the router processes", choices=("round-robin", "random"))
    chars_per_token: int = setting(4, "characters one token stands for, for routers that look at text", min=1, max=64)
    metrics_interval_s: float | None = setting(
        None, "how old the engine metrics a router reads may be, in seconds (none: as the router polls)", min=0.0, max=3600.0
    )
    event_lag_s: float = setting(0.0, "seconds until a KV event reaches the router", min=0.0, max=3600.0)
    retries: int = setting(3, "times a request is sent again after its replica died", min=0, max=1000)
    seed: int = setting(0, "seed of the routers' lots", min=0, max=2**63 - 1)
    operations: tuple[Operation, ...] = setting((), "deploys, failures and scaling")
    overrides: tuple[tuple[int, Mapping[str, Any]], ...] = setting((), "settings of single replicas: (number, settings that differ)")

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Tables of a file as operations and overrides."""
        if (given := values.get("operations")) is not None:
            values["operations"] = tuple(_operation(x) for x in _listed("operations", given))
        if (given := values.get("overrides")) is not None:
            values["overrides"] = tuple(_override(x) for x in _listed("overrides", given))
        return values

    def check(self) -> None:
        """Operations name replicas that exist by then; so do overrides."""
        most = self.slots
        if most > MOST_REPLICAS:
            raise SettingsError("replicas", most, f"at most {MOST_REPLICAS} with those that are added")
        for what, number in [("operations.replica", o.replica) for o in self.operations] + [("overrides", n) for n, _ in self.overrides]:
            if number is not None and number >= most:
                raise SettingsError(what, number, f"a replica of the fleet: 0 to {most - 1}")

    @property
    def slots(self) -> int:
        """Replicas there are at most: those of the start and all that are added."""
        return self.replicas + sum(o.count for o in self.operations if o.kind == "add")

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, ready for JSON or TOML."""
        plain = Validated.to_mapping(self)
        plain["router_settings"] = dict(self.router_settings)
        plain["operations"] = [o.changed() | {"kind": o.kind, "at": o.at} for o in self.operations]
        plain["overrides"] = [{"replica": n, **values} for n, values in self.overrides]
        return plain


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    raise SettingsError(name, value, "a list of tables")


def _operation(value: Any) -> Operation:
    if isinstance(value, Operation):
        return value
    if not isinstance(value, Mapping):
        raise SettingsError("operations", value, "tables such as {kind = 'deploy', at = 600}")
    return Operation.from_mapping(value)


def _override(value: Any) -> tuple[int, Mapping[str, Any]]:
    if isinstance(value, tuple) and len(value) == 2:
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("replica"), int):
        raise SettingsError("overrides", value, "tables such as {replica = 2, num_gpu_blocks = 4096}")
    return int(value["replica"]), {k: v for k, v in value.items() if k != "replica"}
