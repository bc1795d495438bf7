"""Interpreted the engine says the same, and compiled it never leaves an array."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

INTERPRETED = """
from random import Random
from simkv.engine.vllm_v0.loop import advance
from tests.vllm_v0.cases import draw_case
from tests.vllm_v0.test_against_reference import compare
assert type(advance).__name__ == "function", "this is not interpreted"
print(sorted({compare(draw_case(Random(seed), most_requests=8)) for seed in range(25)}))
"""

BOUNDS = """
from random import Random
from numba.core import config
from simkv.engine.vllm_v0 import state
from simkv.errors import EngineError
from tests.vllm_v0.cases import draw_case, engine
assert config.BOUNDSCHECK == 1
state.FIRST_ROWS = state.FIRST_STEPS = 1
for seed in range(120):
    e = engine(draw_case(Random(70_000 + seed)))
    try:
        e.advance()
    except EngineError:
        pass
    e.event_log().events
print("never left")
"""


def run(code: str, *options: str, **environment: str) -> str:
    env = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *options, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=400, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_interpreted() -> None:
    # Unsigned arithmetic wraps on purpose; only numpy's scalars warn about it.
    said = run(INTERPRETED, "-W", "ignore:overflow encountered:RuntimeWarning", NUMBA_DISABLE_JIT="1")
    assert said == "['done', 'no swap space', 'stalled']"


def test_no_index_out_of_bounds(tmp_path: Path) -> None:
    assert run(BOUNDS, NUMBA_BOUNDSCHECK="1", SIMKV_CACHE=str(tmp_path)) == "never left"
