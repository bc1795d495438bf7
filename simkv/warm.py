"""Compile beforehand: ``python -m simkv.warm`` puts the compiled engine and folds on disk, so that no first use waits.

The two packages are compiled by two processes at once; each is a matter of many seconds, once per machine and version.
"""

from __future__ import annotations

import subprocess
import sys
import time

from simkv import jit


def warm_engine() -> None:
    """Put a few requests through the engine."""
    from simkv.replay import replay
    from simkv.settings import EngineSettings
    from simkv.workload.generators import generate

    replay(generate("shared_system_prompt", requests=4), EngineSettings(num_gpu_blocks=2000, max_num_seqs=4))


def warm_folds() -> None:
    """Fold a log in which nothing happens; read the keys of a request."""
    import numpy as np

    from simkv.engine.vllm.chain import chain_keys
    from simkv.events.folds.block_map import block_history
    from simkv.events.folds.pool import PoolFold
    from simkv.events.folds.waste import uses
    from simkv.events.layout import EVENT, STEP
    from simkv.events.log import EventLog
    from simkv.workload.generators import generate

    header = {"num_blocks": 2, "groups": [{"type": "full", "block_size": 16}], "max_blocks_per_request": 1}
    header |= {"max_live_requests": 1, "requests": 0}
    log = EventLog.of_events(np.zeros(0, EVENT), np.zeros(0, np.uint64), np.zeros(1, STEP), header)
    PoolFold(log).seek(0)
    block_history(log)
    uses(log, np.zeros(0, np.int64), None)
    chain_keys(generate("shared_system_prompt", requests=4), 0, 16)


def folds_beside() -> subprocess.Popen[bytes]:
    """Compile the folds in a process of their own; wait for it before the first fold."""
    return subprocess.Popen([sys.executable, "-m", "simkv.warm", "folds"])


def warm() -> float:
    """Compile everything that is not on disk yet; returns the seconds it took."""
    started = time.perf_counter()
    jit.prune_stale()
    beside = folds_beside()
    warm_engine()
    if beside.wait() != 0:
        warm_folds()  # whatever went wrong there is told here
    return time.perf_counter() - started


if __name__ == "__main__":
    if sys.argv[1:] == ["folds"]:
        warm_folds()
    else:
        print("Compiling the engine, once for this machine and version (about 20 s)", file=sys.stderr)
        print(f"The engine is compiled ({warm():.1f} s).", file=sys.stderr)
