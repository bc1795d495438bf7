"""A whole process's cost: CPU seconds and peak memory of one ``simkv`` command, start-up and reading included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from simkv.errors import EngineError


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds (user + system), peak resident memory in MB (10^6 bytes), and what the command printed as JSON."""

    cpu_s: float
    rss_mb: float
    result: dict[str, Any]


def simkv(*arguments: str) -> Cost:
    """Run ``simkv ARGUMENTS --json`` on one core and measure it. Raises EngineError if it fails."""
    line = [sys.executable, "-m", "simkv", *arguments, "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, env={**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise EngineError(f"`{' '.join(line[2:])}` ended with exit code {process.returncode}.")
    kilobytes = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss / 1024
    return Cost(usage.ru_utime + usage.ru_stime, kilobytes * 1024 / 1e6, json.loads(out))
