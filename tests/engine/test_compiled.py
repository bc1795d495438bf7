"""The compiled functions are the ones that stand in the files: interpreted they say the same, and they never index out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "vllm"

INTERPRETED = """
import sys
from pathlib import Path
from random import Random
from simkv.conformance.vllm_log import check_recording
from simkv.engine.vllm.loop import advance
from simkv.events.folds.block_map import block_history
from tests.engine.cases import draw_case
from tests.engine.compare import Side
from simkv.events.folds.pool import PoolFold
from tests.folds.live import recorded, same

assert type(advance).__name__ == "function", "this is not interpreted"
golden = Path(sys.argv[1])
names = "01_shared_system_prompt 04_preemption_recompute 06_lora 14_priority 22_async_preemption 33_hybrid_block_sizes_interval"
for name in names.split():
    result = check_recording(golden / f"{name}.input.json", golden / f"{name}.log.jsonl.gz")
    assert result.exact, result.first_difference
for seed in range(6):
    Side(draw_case(Random(seed), most_requests=6)).run(200)
_, log, moments = recorded(draw_case(Random(3)))
fold = PoolFold(log)
for turn, expected in enumerate(moments):
    same(fold.seek(turn), expected)
block_history(log)
print("interpreted: same")
"""

BOUNDS = """
import sys
from pathlib import Path
from random import Random
from numba.core import config
from simkv.conformance.vllm_log import check_recording
from simkv.engine.vllm import state
from simkv.engine.vllm.engine import VllmEngine
from tests.engine.cases import draw_case
from tests.engine.compare import Side

assert config.BOUNDSCHECK == 1
golden = Path(sys.argv[1])
state._expected_log = lambda *_: (1, 1, 1)
state.FIRST_STEPS = 1
for path in sorted(golden.glob("*.input.json*")):
    name = path.name.split(".input.json")[0]
    if not name.startswith(("R1", "R3", "R4")):
        result = check_recording(path, golden / f"{name}.log.jsonl.gz")
        assert result.exact, result.first_difference
for seed in range(60):
    case = draw_case(Random(50_000 + seed))
    engine = VllmEngine(case.workload, case.settings, case.step_time.record(), log=True)
    engine.advance()
    assert len(engine.event_log().rows) <= len(engine.state.log)
Side(draw_case(Random(5))).run()
print("bounds: never left")
"""


def run(code: str, *options: str, **environment: str) -> str:
    line = [sys.executable, *options, "-c", code, str(GOLDEN)]
    env = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=400, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_interpreted() -> None:
    # Unsigned arithmetic wraps on purpose; only numpy's scalars warn about it.
    assert run(INTERPRETED, "-W", "ignore:overflow encountered:RuntimeWarning", NUMBA_DISABLE_JIT="1") == "interpreted: same"


def test_no_index_out_of_bounds(tmp_path: Path) -> None:
    """Compiled again with bounds checks, in a cache of its own: half a minute."""
    assert run(BOUNDS, NUMBA_BOUNDSCHECK="1", SIMKV_CACHE=str(tmp_path)) == "bounds: never left"
