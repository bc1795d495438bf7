"""Compile beforehand: ``python -m simkv.warm`` puts compiled engines and folds on disk, so that no first use waits.

Each part is compiled by a process of its own, as many at once as there are cores; a matter of many seconds, once per
machine and version. The parts that the opening page needs come first, the other engines when nobody waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from simkv import jit

FOLDS = "folds"
FLEET = "fleet"
FIRST = ("vllm", FOLDS)
"""What the page opens with."""
TINY_POOL: dict[str, dict[str, Any]] = {
    "vllm": {"num_gpu_blocks": 2000, "max_num_seqs": 4},
    "sglang": {"max_total_tokens": 32_000, "max_running_requests": 4},
    "vllm-v0": {"num_gpu_blocks": 2000, "max_num_seqs": 4},
    "contiguous": {"num_gpu_blocks": 2000, "max_num_seqs": 4},
    "vllm+native": {"num_gpu_blocks": 2000, "max_num_seqs": 4, "kv_offload_num_chunks": 100},
    "vllm+simple": {"num_gpu_blocks": 2000, "max_num_seqs": 4, "kv_offload_num_chunks": 100, "kv_offload_connector": "simple"},
}
"""Settings of a small pool for each part (``Settings.compiled_as``)."""
NICENESS = 10


def warm_engine(part: str) -> None:
    """Put a few requests through an engine."""
    from simkv.engine.engines import note_compiled
    from simkv.replay import replay
    from simkv.settings import settings_class
    from simkv.workload.generators import generate

    settings = settings_class(part.partition("+")[0]).from_mapping(TINY_POOL[part])
    replay(generate("shared_system_prompt", requests=4), settings)
    note_compiled(part)


def warm_folds() -> None:
    """Fold a log in which nothing happens; count its gaps; read the keys of a request."""
    import numpy as np

    from simkv.engine.vllm.chain import chain_keys
    from simkv.events.folds.block_map import block_history
    from simkv.events.folds.pool import PoolFold
    from simkv.events.folds.waste import uses
    from simkv.events.layout import EVENT, GAP, STEP
    from simkv.events.log import EventLog
    from simkv.events.turns import Turns
    from simkv.latency import FEW, percentiles_of_gaps
    from simkv.workload.generators import generate

    header = {"num_blocks": 2, "groups": [{"type": "full", "block_size": 16}], "max_blocks_per_request": 1}
    header |= {"max_live_requests": 1, "requests": 0}
    log = EventLog.of_events(np.zeros(0, EVENT), np.zeros(0, np.uint64), np.zeros(1, STEP), header)
    PoolFold(log).seek(0)
    block_history(log)
    uses(log, np.zeros(0, np.int64), None)
    turns = np.ones(FEW, STEP)
    percentiles_of_gaps([(Turns(turns), np.zeros(0, GAP))])
    chain_keys(generate("shared_system_prompt", requests=4), 0, 16)


FORGETFUL = {
    "max_tree_size": 0,
    "eviction_interval_secs": 1,
    "do_eviction": True,
    "eviction_threshold_chars": 0,
    "eviction_target_chars": 0,
}
"""Settings with which a router's tables overflow at once, as far as it has them."""


def warm_fleet() -> None:
    """Put a few requests through a fleet behind every router; its tables overflow, and a replica leaves."""
    from simkv.fleet.routing import policy_class, policy_names
    from simkv.replay_fleet import replay_fleet
    from simkv.settings import EngineSettings
    from simkv.settings.fleet import FleetSettings, Operation
    from simkv.workload.generators import generate

    requests, settings = generate("shared_system_prompt", requests=8), EngineSettings.from_mapping(TINY_POOL["vllm"])
    leaves = Operation("remove", at=float(requests.arrive[-2]), replica=1, drain=False)
    for name in policy_names():
        known = policy_class(name).Settings().to_mapping()
        few = {k: v for k, v in FORGETFUL.items() if k in known}
        more = 1 + known.get("pod_cache_size", 1)  # than it keeps
        replay_fleet(requests, settings, FleetSettings(replicas=more, router=name, router_settings=few, operations=(leaves,)))
    impatient = generate("shared_system_prompt", requests=4, arrivals="closed loop", think_s=0, users=2)
    replay_fleet(impatient, settings, FleetSettings(replicas=2))


def everything() -> tuple[str, ...]:
    """All parts, those the page opens with first."""
    return (*FIRST, *(part for part in TINY_POOL if part not in FIRST), FLEET)  # a fleet runs vLLM: not before that is there


def beside(*parts: str) -> subprocess.Popen[bytes]:
    """Compile parts in a process of their own; wait for it before the first use."""
    return subprocess.Popen([sys.executable, "-m", "simkv.warm", "--here", *parts])


def the_rest() -> subprocess.Popen[bytes]:
    """Compile what the opening page does not need, in the background and out of everybody's way."""
    return subprocess.Popen([sys.executable, "-m", "simkv.warm", "--quietly", *everything()[len(FIRST) :]])


def warm(parts: Sequence[str] = FIRST) -> float:
    """Compile what of ``parts`` is not on disk yet; returns the seconds it took.

    Raises:
        subprocess.CalledProcessError: a part does not compile; its process has said why.
    """
    started = time.perf_counter()
    jit.prune_stale()
    waiting = list(parts)
    running: dict[str, subprocess.Popen[bytes]] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            part = waiting.pop(0)
            running[part] = beside(part)
        ended = next((part for part, process in running.items() if process.poll() is not None), None)
        if ended is None:
            time.sleep(0.02)
            continue
        process = running.pop(ended)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return time.perf_counter() - started


def main(words: Sequence[str]) -> None:
    """``--here PART …``: in this process; ``--quietly PART …``: the same, at low priority; ``all`` or parts: in processes."""
    parts = [word for word in words if not word.startswith("--")]
    if "--quietly" in words:
        os.nice(NICENESS)
    if "--quietly" in words or "--here" in words:
        for part in parts:
            if part == FOLDS:
                warm_folds()
            elif part == FLEET:
                warm_fleet()
            else:
                warm_engine(part)
        return
    wanted = everything() if parts == ["all"] else tuple(parts) or FIRST
    print(f"Compiling {', '.join(wanted)}, once for this machine and version (20 to 60 s each)", file=sys.stderr)
    print(f"Compiled ({warm(wanted):.1f} s).", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
