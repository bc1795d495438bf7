"""The compiled functions are the ones that stand in the files: interpreted they say the same, and they never index out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "sglang"

INTERPRETED = """
import sys
from pathlib import Path
from random import Random
from simkv.conformance.sglang_log import check_sglang
from simkv.engine.sglang.loop import advance
from tests.engine.sglang.cases import draw_engine
from tests.engine.sglang.test_whole_runs import run_watched

assert type(advance).__name__ == "function", "this is not interpreted"
golden = Path(sys.argv[1])
for name in "03_leaf_first_lru_ops 05_locked_ops 07_policy_dfs-weight 07_policy_hrrn 09d_never_fits 11_inbatch_lpm 12_priority".split():
    result = check_sglang(golden / f"{name}.workload.json", golden / f"{name}.python.jsonl")
    assert result.exact, result.first_difference
for seed in range(8):
    run_watched(draw_engine(Random(seed), most_requests=6))
print("interpreted: same")
"""

BOUNDS = """
import sys
from pathlib import Path
from random import Random
from numba.core import config
from simkv.conformance.sglang_log import check_sglang
from simkv.engine.sglang import state
from tests.engine.sglang.cases import draw_engine

assert config.BOUNDSCHECK == 1
golden = Path(sys.argv[1])
state._expected_log = lambda *_: (1, 1, 1)
state.FIRST_STEPS = 1
for log in sorted(golden.glob("*.python.jsonl*")):
    name = log.name.split(".python.jsonl")[0]
    if not name.startswith(("13", "14")):
        result = check_sglang(golden / f"{name}.workload.json", log)
        assert result.exact, result.first_difference
for seed in range(200):
    engine = draw_engine(Random(50_000 + seed))
    engine.advance()
    engine.check_integrity()
print("bounds: never left")
"""


def run(code: str, *options: str, **environment: str) -> str:
    line = [sys.executable, *options, "-c", code, str(GOLDEN)]
    env = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_interpreted() -> None:
    # Unsigned arithmetic wraps on purpose; only numpy's scalars warn about it.
    assert run(INTERPRETED, "-W", "ignore:overflow", NUMBA_DISABLE_JIT="1") == "interpreted: same"


def test_no_index_leaves_its_array() -> None:
    assert run(BOUNDS, NUMBA_BOUNDSCHECK="1") == "bounds: never left"
