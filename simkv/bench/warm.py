"""``python -m simkv.bench.warm``: compile the engine and keep the code on disk, so that the next start is fast."""

from __future__ import annotations

import sys

from simkv.commands.text import seconds


def warm() -> float:
    """Run a few requests through the engine, with and without the event log; returns the seconds spent compiling."""
    from simkv.replay import replay
    from simkv.settings import EngineSettings
    from simkv.workload.golden import read_spec

    raise NotImplementedError(replay, EngineSettings, read_spec)


if __name__ == "__main__":
    print(f"compiled in {seconds(warm())}", file=sys.stderr)
