"""A fleet's run on disk: what ``simkv replay --replicas … --out`` writes.

``run.json`` settings, summary, operations; ``requests.csv`` with the replica of each request; ``decisions.csv`` every
routing decision with its scores; ``metrics/replica-<i>.csv``; ``workload.npz``, ``requests.npy`` and ``events/`` for exact
exports. Nothing is pickled.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv import __version__
from simkv.errors import InputError
from simkv.events.fleet_log import OPERATION_KINDS
from simkv.plain import plain
from simkv.run_folder import FORMAT, check_target, numbers, request_columns, write_csv
from simkv.workload.store import save_workload

if TYPE_CHECKING:
    from simkv.replay_fleet import FleetRun


def save_fleet(run: FleetRun, folder: Path, *, source: str, seed: int, summary: dict[str, Any]) -> None:
    """Write everything of ``run`` into ``folder``; files of an earlier run there are replaced.

    Args:
        source: what the user named (file, bundled trace, generator); provenance only.
        seed: the generator's seed.
        summary: what the command line printed.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    from simkv.metrics.series import series

    check_target(folder)
    try:
        (folder / "metrics").mkdir(parents=True, exist_ok=True)
        (folder / "run.json").unlink(missing_ok=True)
        if run.log is not None:
            run.log.save(folder / "events")
        save_workload(run.workload, folder / "workload.npz")
        np.save(folder / "requests.npy", run.requests, allow_pickle=False)
        columns = request_columns(run.workload, run.requests)
        columns["replica"] = ["" if p < 0 else p for p in run.placed.tolist()]
        columns["sent_again"] = run.attempts.tolist()
        columns["warming"] = [int(i >= run.traffic) for i in range(len(run.workload))]
        write_csv(folder / "requests.csv", columns)
        write_csv(folder / "decisions.csv", _decisions(run))
        for i, replica in enumerate(run.replicas):
            write_csv(folder / "metrics" / f"replica-{i}.csv", {n: numbers(np.asarray(v)) for n, v in series(replica, points=1000).items()})
        # Last, and as a whole: a folder with run.json is complete.
        (folder / "run.json").write_text(json.dumps(_info(run, source, seed, summary), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot be written ({problem.strerror or problem})", file=str(folder)) from None


def _decisions(run: FleetRun) -> dict[str, list[Any]]:
    d = run.decisions
    unknown = {name: ["" if v < 0 else v for v in d[name].tolist()] for name in ("cached", "best_cached", "best_worker")}
    return {
        "time": d["time"].tolist(),
        "id": [run.workload.id(i) for i in d["req"].tolist()],
        "router": d["router"].tolist(),
        "replica": d["worker"].tolist(),
        "branch": [run.branches[b] for b in d["branch"].tolist()],
        "attempt": d["attempt"].tolist(),
        "matched_units": d["matched"].tolist(),
        "compared_units": d["total"].tolist(),
        "inflight": d["inflight"].tolist(),
        "cached_tokens": unknown["cached"],
        "best_cached_tokens": unknown["best_cached"],
        "best_replica": unknown["best_worker"],
        **{f"score_{w}": numbers(run.scores[:, w].astype(np.float64)) for w in range(run.scores.shape[1])},
    }


def _info(run: FleetRun, source: str, seed: int, summary: dict[str, Any]) -> dict[str, Any]:
    operations = [{"time": o["time"], "what": OPERATION_KINDS[o["kind"]], "replica": int(o["replica"])} for o in run.operations]
    info: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "simkv": __version__,
            "source": source,
            "seed": seed,
            "workload": {"name": run.workload.name, "format": run.workload.format, "time_unit": run.workload.time_unit},
            "traffic": run.traffic,
            "settings": run.settings.to_mapping(),
            "changed_settings": run.settings.changed(),
            "fleet": run.fleet.to_mapping(),
            "resolved": [asdict(r.resolved) for r in run.replicas],
            "step_time": asdict(run.replicas[0].step_time),
            "prefers": run.prefers,
            "operations": operations,
            "summary": summary,
            "counters": run.counters,
            "status": run.status,
            "notes": run.notes,
            "read_report": asdict(run.workload.report),
        }
    )
    return info
