"""Does the replay make the real engine's own decisions? Recorded runs, compared field by field."""

from simkv.conformance.result import Difference, RunResult
from simkv.conformance.runner import run_conformance

__all__ = ["Difference", "RunResult", "run_conformance"]
