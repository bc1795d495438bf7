"""Same seed, same log, on every machine: digests of whole fleet logs, written down once.

A digest changes when a decision or a clock changes. If that was meant, run this file with ``-s`` and copy what it prints.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from simkv.replay_fleet import FleetRun, replay_fleet
from simkv.settings import EngineSettings
from simkv.settings.fleet import FleetSettings
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_workload

OPERATIONS = [
    {"kind": "deploy", "at": 60.0, "startup_s": 10.0, "warm": 3},
    {"kind": "fail", "at": 20.0, "replica": 2, "down_s": 15.0},
    {"kind": "add", "at": 30.0, "startup_s": 5.0},
]
KNOWN = {
    "dynamo-kv": "cf81e6a70c282fd5",
    "llm-d-approx-prefix": "819a55762be1b9fa",
    "power-of-two": "099a8124b198feb0",
    "production-stack-prefixaware": "53fa9cde0089786b",
    "random": "cc0df8f11282871a",
    "ray-prefix-aware": "368130e2e2e0057d",
    "sglang-cache-aware": "11b99e3885cbf200",
    "smg-cache-aware": "c3ae5ebc75093a80",
}


def digest(run: FleetRun) -> str:
    """Of every decision with its scores, every operation, and every event of every replica."""
    assert run.log is not None
    h = hashlib.sha256()
    for name in run.decisions.dtype.names or ():
        h.update(np.ascontiguousarray(run.decisions[name]).tobytes())
    h.update(np.ascontiguousarray(run.scores).tobytes())
    for rows in (run.operations, *(log.steps for log in run.log.replicas)):
        for name in rows.dtype.names or ():
            if name != "turns":  # always 1
                h.update(np.ascontiguousarray(rows[name]).tobytes())
    for log in run.log.replicas:
        for column in (log.rows, log.blocks, log.keys):
            h.update(np.ascontiguousarray(column).tobytes())
    return h.hexdigest()[:16]


@pytest.mark.parametrize("router", sorted(KNOWN))
def test_the_whole_log_is_the_one_written_down(router: str) -> None:
    workload = read_workload(bundled()["mooncake_conversation"], limit=400)
    fleet = FleetSettings.from_mapping({"replicas": 4, "routers": 2, "router": router, "seed": 11, "operations": OPERATIONS})
    found = digest(replay_fleet(workload, EngineSettings(num_gpu_blocks=20_000), fleet))
    print(f'    "{router}": "{found}",')
    assert found == KNOWN[router]
