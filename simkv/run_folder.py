"""A run on disk: what ``simkv replay --out`` writes and ``simkv export`` reads.

``run.json`` settings, what followed from them, summary, what the reader saw; ``requests.csv`` and ``metrics.csv`` for
spreadsheets; ``workload.npz``, ``requests.npy`` and ``events/`` for exact exports. Nothing is pickled.
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv import __version__
from simkv.errors import InputError
from simkv.events.digests import Digests
from simkv.events.log import EventLog
from simkv.plain import plain
from simkv.workload.store import load_workload, save_workload
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.replay import Run

FORMAT = 1


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run read back: ``info`` is run.json, ``requests`` are REQUEST_RESULT rows."""

    folder: Path
    info: dict[str, Any]
    workload: Workload
    requests: npt.NDArray[np.void]

    def log(self, replica: int | None = None) -> EventLog:
        """The event log; of a fleet, one replica's. Raises InputError if the run was made without one, or has no such replica."""
        count = len(self.info["resolved"]) if isinstance(self.info["resolved"], list) else None
        if count is None:
            if replica is not None:
                raise InputError("this is the run of one engine, not of a fleet", file=str(self.folder), hint="Leave --replica out")
            return EventLog.load(self.folder / "events")
        if replica is None or not 0 <= replica < count:
            raise InputError(
                f"this is a fleet of {count} replicas", file=str(self.folder), expected=f"--replica 0 to {count - 1}, whose log to take"
            )
        self.info["resolved"] = self.info["resolved"][replica]
        return EventLog.load(self.folder / "events" / f"replica-{replica}")

    def digests(self) -> Digests:
        """The engine's real block digests for this run's requests. Raises InputError for an engine whose digests are not known."""
        resolved, engine = self.info["resolved"], self.info["settings"]["engine"]
        if engine != "vllm":
            raise InputError(
                f"the run is of {engine}, whose block digests are not modelled",
                file=str(self.folder),
                expected="a run of vLLM for this format",
                hint="--format parquet has the same events with their 64-bit keys",
            )
        profile = resolved["profile"]
        return Digests(
            self.workload,
            resolved["hash_block_size"],
            resolved["hash_algo"],
            tagged=profile["tagged_extra_keys"],
            lora_path=profile["lora_path_in_key"],
        )


def check_target(folder: Path) -> None:
    """Refuse a folder that holds something else than a run. Raises InputError."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file", file=str(folder), expected="a folder for the run")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "run.json").exists():
        raise InputError("the folder is not empty and holds no run", file=str(folder), expected="a new folder, or one of an earlier run")


def save_run(run: Run, folder: Path, *, source: str, seed: int, summary: dict[str, Any]) -> None:
    """Write everything of ``run`` into ``folder``; files of an earlier run there are replaced.

    Args:
        source: what the user named (file, bundled trace, generator); provenance only, exports do not need it.
        seed: the generator's seed.
        summary: what the command line printed.
    """
    check_target(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").unlink(missing_ok=True)
        if run.log is not None:
            run.log.save(folder / "events")
        save_workload(run.workload, folder / "workload.npz")
        np.save(folder / "requests.npy", run.requests, allow_pickle=False)
        write_csv(folder / "requests.csv", request_columns(run.workload, run.requests))
        _write_metrics(run, folder / "metrics.csv")
        # Last, and as a whole: a folder with run.json is complete.
        (folder / "run.json").write_text(json.dumps(_info(run, source, seed, summary), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot be written ({problem.strerror or problem})", file=str(folder)) from None


def open_run(folder: Path) -> SavedRun:
    """Read a run back. Raises InputError if the folder holds none, or one of another format."""
    try:
        info: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        requests = np.load(folder / "requests.npy", allow_pickle=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"no readable run ({problem})", file=str(folder), hint="Make one with `simkv replay SOURCE --out DIR`") from None
    if info.get("format") != FORMAT:
        raise InputError("the run has another format", file=str(folder), expected=f"format {FORMAT}", hint="Run the replay again")
    return SavedRun(folder, info, load_workload(folder / "workload.npz"), requests)


def _info(run: Run, source: str, seed: int, summary: dict[str, Any]) -> dict[str, Any]:
    everything = {
        "format": FORMAT,
        "simkv": __version__,
        "source": source,
        "seed": seed,
        "workload": {"name": run.workload.name, "format": run.workload.format, "time_unit": run.workload.time_unit},
        "settings": run.settings.to_mapping(),
        "changed_settings": run.settings.changed(),
        "resolved": asdict(run.resolved),
        "step_time": asdict(run.step_time),
        "summary": summary,
        "counters": run.counters,
        "status": run.status,
        "read_report": asdict(run.workload.report),
    }
    info: dict[str, Any] = plain(everything)
    return info


def request_columns(w: Workload, r: npt.NDArray[np.void]) -> dict[str, list[Any]]:
    """One line a request, in order of arrival; empty where it did not come to that."""
    from simkv.replay import STATUS

    unit = "s" if w.time_unit == "seconds" else "steps"
    arrive, scheduled, first, finish = (r[name] for name in ("arrive", "scheduled", "first_token", "finish"))
    columns: dict[str, list[Any]] = {
        "id": [w.id(i) for i in range(len(w))],
        "status": [STATUS[s] for s in r["status"].tolist()],
        f"arrive_{unit}": numbers(arrive),
        f"queue_{unit}": numbers(scheduled - arrive),
        f"ttft_{unit}": numbers(first - arrive),
        f"e2e_{unit}": numbers(finish - arrive),
        "prompt_tokens": w.num_prompt.tolist(),
        "cached_tokens": [n if s == s else "" for n, s in zip(r["hit"].tolist(), scheduled.tolist(), strict=True)],
        "generated_tokens": r["generated"].tolist(),
        "preempted": r["preempted"].tolist(),
    }
    for name, index, names in (("tenant", w.tenant, w.tenants), ("session", w.session, w.sessions), ("cache_salt", w.salt, w.salts)):
        if index is not None:
            columns[name] = [names[k] if k >= 0 else "" for k in index.tolist()]
    return columns


def _write_metrics(run: Run, target: Path) -> None:
    """The series the charts are drawn from, at 1,000 moments; empty where there is no data."""
    from simkv.metrics.series import series

    write_csv(target, {name: numbers(np.asarray(values)) for name, values in series(run, points=1000).items()})


def numbers(values: npt.NDArray[Any]) -> list[Any]:
    """Values for a spreadsheet: an empty cell where there is no number."""
    return ["" if v != v else v for v in values.tolist()]


def write_csv(target: Path, columns: dict[str, list[Any]]) -> None:
    """Columns of equal length, with a head."""
    with target.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
