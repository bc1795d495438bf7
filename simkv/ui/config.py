"""What a person asked to see: a source of requests and the engine's settings, as one value with a digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simkv.settings import EngineSettings, Settings
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload

SALTS = {"as recorded": "keep", "off": "off", "per tenant": "per tenant", "per session": "per session"}
"""What the sidebar offers → the mode of ``simkv.workload.transform.with_salts``."""

SPEEDS = {"⅛×": 0.125, "¼×": 0.25, "½×": 0.5, "1×": 1.0, "2×": 2.0, "4×": 4.0, "8×": 8.0}
"""What the sidebar offers → how much faster than recorded."""


@dataclass(frozen=True, slots=True)
class Config:
    """One question to the simulator.

    Args:
        kind: ``trace`` (bundled), ``generator`` or ``upload``.
        name: the trace's or generator's name, or the uploaded file's name.
        params: the generator's parameters (name, value), or the reader's options of an upload.
        content: digest of the uploaded bytes; empty otherwise.
        limit: keep the first so many requests; ``None`` keeps all.
        salts: mode of ``with_salts``: who gets a cache_salt of his own.
        speed: how much faster than recorded the requests arrive.
        settings: the engine's settings, of each replica.
        fleet: replicas, router and operations; ``None`` for one replica without a router.
    """

    kind: str
    name: str
    params: tuple[tuple[str, Any], ...] = ()
    content: str = ""
    limit: int | None = None
    salts: str = "keep"
    speed: float = 1.0
    settings: Settings = field(default_factory=EngineSettings)
    fleet: FleetSettings | None = None

    @property
    def source_digest(self) -> str:
        """Identity of the requests before salts and settings."""
        return _digest([self.kind, self.name, self.params, self.content, self.limit])

    @property
    def digest(self) -> str:
        """Identity of the run: equal questions have equal answers."""
        fleet = [self.fleet.to_mapping()] if self.fleet is not None else []
        return _digest([self.source_digest, self.salts, self.speed, self.settings.to_mapping(), *fleet])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:20]


def cost(workload: Workload, settings: Settings, fleet: FleetSettings | None = None, measured_rate: float = 2.5e6) -> float:
    """Rough seconds a replay takes: blocks touched and tokens decoded over what one core does per second.

    A fleet decodes the same tokens in smaller batches, but is not replayed a second time for its ceiling.
    """
    blocks = float(workload.num_prompt.sum(dtype=np.int64)) / settings.tokens_per_block
    return (2 * blocks + float(workload.num_output.sum(dtype=np.int64)) / (2 if fleet else 4)) / measured_rate
