"""``python -m simkv.bench.warm``: compile the engine and keep the code on disk, so that the next start is fast."""

from __future__ import annotations

import sys
import time

from simkv.commands.text import seconds


def warm() -> float:
    """Put a few requests through the engine; returns the seconds it took (compiling, when nothing lay on disk)."""
    from simkv.replay import replay
    from simkv.settings import EngineSettings
    from simkv.workload.generators import generate

    started = time.perf_counter()
    replay(generate("shared_system_prompt", requests=4), EngineSettings(num_gpu_blocks=2000, max_num_seqs=4))
    return time.perf_counter() - started


if __name__ == "__main__":
    print(f"The engine is compiled ({seconds(warm())}).", file=sys.stderr)
