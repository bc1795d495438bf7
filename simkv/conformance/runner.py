"""Find every recording below a folder and check each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from simkv.conformance.live import check_live
from simkv.conformance.offload_manager import manager_scripts
from simkv.conformance.result import Difference, RunResult
from simkv.conformance.routers import check_router
from simkv.conformance.sglang_log import check_sglang
from simkv.conformance.vllm_log import check_recording
from simkv.errors import InputError, SimkvError

INPUTS = (".input.json", ".input.json.gz")
LOGS = (".log.jsonl", ".log.jsonl.gz")
SGLANG_INPUTS = (".workload.json", ".workload.json.gz")
SGLANG_LOGS = tuple(f".{tree}.jsonl{gz}" for tree in ("python", "rust") for gz in ("", ".gz"))


def run_conformance(folder: Path, on_result: Callable[[RunResult], None] | None = None) -> list[RunResult]:
    """Replay all recordings in ``folder`` and below, in order of path.

    Args:
        on_result: called with each result as it comes.

    A recording that cannot be read or replayed is not exact; its note says why, and the others are checked all the same.

    Raises:
        InputError: no such folder, or nothing recorded in it.
    """
    if not folder.is_dir():
        raise InputError("no such folder", file=str(folder), expected="a folder with recorded runs")
    checks: list[tuple[Path, Callable[[], RunResult]]] = []
    for path in sorted(folder.rglob("*.json*")):
        if (log := _beside(path, INPUTS, LOGS)) is not None:
            checks.append((path, lambda path=path, log=log: check_recording(path, log)))  # type: ignore[misc]
        elif (log := _beside(path, SGLANG_INPUTS, SGLANG_LOGS)) is not None:
            checks.append((path, lambda path=path, log=log: check_sglang(path, log)))  # type: ignore[misc]
        elif path.name.endswith((".json.gz", ".json")) and (live := check_live(path)) is not None:
            checks.append((path, live))
        elif path.name.endswith((".json.gz", ".json")) and (router := check_router(path)) is not None:
            checks.append((path, router))
        elif path.name.endswith(".jsonl.gz"):
            checks += [(path, script) for script in manager_scripts(path)]
    if not checks:
        raise InputError(
            "no recorded run found",
            file=str(folder),
            expected="NAME.input.json[.gz] beside NAME.log.jsonl[.gz], NAME.workload.json[.gz] beside NAME.python.jsonl[.gz],"
            " or a recording of a live server or a router",
        )
    results = []
    for path, check in checks:
        results.append(_tried(path, check))
        if on_result is not None:
            on_result(results[-1])
    return results


def _beside(path: Path, inputs: tuple[str, ...], logs: tuple[str, ...]) -> Path | None:
    """The log that belongs to an input, if this is one."""
    suffix = next((s for s in inputs if path.name.endswith(s)), None)
    if suffix is None:
        return None
    stem = path.name[: -len(suffix)]
    return next((log for s in logs if (log := path.with_name(stem + s)).exists()), None)


def _tried(path: Path, check: Callable[[], RunResult]) -> RunResult:
    name = path.name.split(".")[0]
    try:
        return check()
    except SimkvError as problem:
        return RunResult(name, False, 0, Difference(name, None, "recording", "one that can be replayed", str(problem)))
