"""Replay a run recorded from the real vLLM scheduler and compare every field of every record.

A recording is ``NAME.input.json[.gz]`` (workload and settings) beside ``NAME.log.jsonl[.gz]`` (one record per turn of
the engine's loop: what was scheduled, new block ids, preemptions, queues, the whole free queue or its checksum,
reference counts, block tables, statistics, KV events with real digests).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simkv.conformance.result import Comparison, RunResult
from simkv.conformance.wire import Wire
from simkv.engine.engines import merge
from simkv.engine.resolve import resolve
from simkv.engine.step_time import for_workload
from simkv.engine.vllm.engine import CRASHED, DONE, PROCESSED, SCHEDULED, STALLED, VllmEngine
from simkv.errors import InputError
from simkv.events import layout as ev
from simkv.settings import EngineSettings
from simkv.workload.registry import read_workload
from simkv.workload.workload import ABORT, Workload, tokens_of

KIND_LETTER = "NRC"
STATISTICS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")
COUNTERS = ("requests", "queries", "hits", "recompute_requests", "recompute_queries", "recompute_hits")
FROM_EVENTS = ("stored_blocks", "removed_blocks")
"""Totals that a recording counts from its KV events, so they are 0 where these were off."""
TOTALS = {
    "steps": "steps",
    "tokens": "tokens",
    "finished": "finished",
    "preemptions": "preemptions",
    "queries": "queries",
    "hits": "hits",
    "preempted_queries": "recompute_queries",
    "preempted_hits": "recompute_hits",
    "stored_blocks": "stored",
    "removed_blocks": "removed",
}


def check_recording(input_path: Path, log_path: Path) -> RunResult:
    """Compare one recording; see the module's text. Raises InputError for files that are not a recording."""
    name = input_path.name.split(".input.json")[0]
    connector = next(_records(log_path), {}).get("connector")
    workload = read_workload(input_path)
    settings = merge(EngineSettings(), workload)
    resolved = resolve(settings, workload, check_pool=False)
    if connector and resolved.offload is None:
        note = f"not replayed: recorded with {connector}, and its input describes no host tier"
        return RunResult(name, False, 0, None, note, reported=True)
    engine = VllmEngine(workload, resolved, for_workload(workload, settings).record(), log=True)
    if connector:
        from simkv.conformance.offload_log import OffloadReplay

        return OffloadReplay(name, engine, workload).run(_records(log_path))
    return Replay(name, engine, workload).run(_records(log_path))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as problem:
                raise InputError(f"not JSON ({problem})", file=str(path), line=number, expected="one record a line") from problem


class Replay:
    """One replay beside its recording."""

    def __init__(self, name: str, engine: VllmEngine, workload: Workload) -> None:
        self.engine, self.workload = engine, workload
        self.compare = Comparison(name)
        self.several = len(engine.settings.groups) > 1
        self.statistics = self._statistics()
        self.wire = Wire(engine, workload)
        self.hash_hex, self.published = 64, True
        self.stored_since = self.removed_since = 0
        self.outputs: dict[int, np.ndarray] = {}

    def run(self, records: Iterator[dict[str, Any]]) -> RunResult:
        meta = next(records, None)
        if not meta or meta.get("k") != "meta":
            raise InputError("no meta record", file=self.compare.run, expected="a log whose first record has k = meta")
        config = meta.get("config", {})
        self.hash_hex, self.published = int(config.get("hash_hex", 64)), bool(config.get("kv_events", True))
        ended = False
        for record in records:
            ended = record["k"] in ("end", "stall", "crash")
            if self.compare.difference is not None:
                break
            if record["k"] == "step":
                self._turn(record)
            elif record["k"] == "stall":
                self._stall(record)
            elif record["k"] == "crash":
                self.compare.equal(record["s"], "crash", CRASHED, self.engine.advance(pause=True))
            elif record["k"] == "end":
                self._end(record)
        if not ended and self.compare.difference is None:
            raise InputError("the log stops before its end record", file=self.compare.run, expected="a whole recording")
        return self.compare.result()

    def _stall(self, record: dict[str, Any]) -> None:
        self.compare.equal(record["s"], "stall", [self._id(r) for r in self.engine.waiting()], record["wait"])

    def _id(self, r: int) -> str:
        return self.workload.id(int(r))

    def _statistics(self) -> list[int]:
        return [int(self.engine.counters[name]) for name in COUNTERS]

    def _table(self, slot: int) -> Any:
        e, groups = self.engine.state, len(self.engine.settings.groups)
        tables = [e.tables[slot * groups + g][: e.lengths[slot * groups + g].length].tolist() for g in range(groups)]
        return tables if self.several else tables[0]

    def _turn(self, record: dict[str, Any]) -> None:
        step, equal = record["s"], self.compare.equal
        first_action = int(self.engine.counters.next_action)
        before = self.engine.mark()
        why = self.engine.advance(pause=True)
        if why == STALLED:
            why = SCHEDULED
        if not equal(step, "turn", CRASHED if record.get("sched", 0) is None else SCHEDULED, why):
            return
        c = self.engine.counters
        rows = self.engine.events_since(before)
        turn = self.engine.steps[-1]
        if why == CRASHED:
            return
        called = int(turn["schedule"]) >= 0
        equal(step, "s", step, int(c.steps) - called)
        if self.engine.config.virtual:
            equal(step, "t", record["t"], round(float(turn["time"]), 9))
        equal(step, "add", record.get("add", []), [self._id(x["req"]) for x in rows if x["kind"] == ev.ARRIVED])
        equal(step, "act", record.get("act", []), self._actions(rows, first_action, record.get("act", [])))
        equal(step, "schedule() called", "sched" in record, called)
        if called and "sched" in record:
            self._scheduled(record, turn, rows)
        if self.compare.difference is None:
            self._processed(record)

    def _actions(self, rows: np.ndarray, first: int, recorded: list[Any]) -> list[Any]:
        """What the actions of this turn did. The workload does not keep the names of unknown requests."""
        out: list[Any] = []
        at = 0
        for action in self.workload.actions[first : int(self.engine.counters.next_action)]:
            if action["op"] == ABORT:
                known = int(action["req"]) >= 0
                hit = known and bool(np.any((rows["kind"] == ev.ABORTED) & (rows["req"] == action["req"])))
                unknown = recorded[len(out)][1] if len(out) < len(recorded) else None
                out.append(["abort", self._id(action["req"]) if known else unknown, int(hit)])
                continue
            preempted = []
            while rows[at]["kind"] not in (ev.CLEARED, ev.RESET_FAILED):
                if rows[at]["kind"] == ev.PREEMPTED:
                    preempted.append(self._id(rows[at]["req"]))
                at += 1
            cleared = bool(rows[at]["kind"] == ev.CLEARED)
            after = at + 1
            while cleared and after < len(rows) and rows[after]["kind"] in (ev.HOST_CLEARED, ev.RESET_FAILED):
                cleared, at = bool(rows[after]["kind"] != ev.RESET_FAILED), after
                after += 1
            raised = rows[at]["kind"] == ev.RESET_FAILED and bool(rows[at]["arg"])
            out.append(["reset_prefix_cache", "RuntimeError" if raised else cleared, preempted])
            at += 1
        return out

    def _scheduled(self, record: dict[str, Any], turn: np.void, rows: np.ndarray) -> None:
        e, c, equal, step = self.engine.state, self.engine.counters, self.compare.equal, record["s"]
        batch = e.rows[1 - int(c.batch)][: int(c.rows)]
        if "dur" in record:
            equal(step, "dur", record["dur"], round(float(turn["duration"]), 9))
        equal(step, "sched", record["sched"], [[self._id(x.req), KIND_LETTER[x.kind], int(x.computed), int(x.n)] for x in batch])
        equal(step, "nb", record["nb"], self._new_blocks(batch, rows))
        equal(step, "pre", record["pre"], [self._id(r) for r in e.victims[: int(turn["preempted"])]])
        running = e.running[: int(c.running)]
        equal(step, "run", record["run"], [self._id(e.slots[s].req) for s in running])
        equal(step, "wait", record["wait"], [self._id(r) for r in self.engine.waiting()])
        self._pool(record, "")
        if "ref" in record:
            ref = e.blocks["ref"][: int(self.engine.config.num_blocks)]
            equal(step, "ref", record["ref"], {str(b): int(ref[b]) for b in np.flatnonzero(ref)})
        if "tab" in record:
            equal(step, "tab", record["tab"], {self._id(e.slots[s].req): self._table(int(s)) for s in running})

    def _new_blocks(self, batch: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
        """Blocks of this step per request: popped ones of running requests, the whole table of admitted ones."""
        popped: dict[tuple[int, int], list[int]] = {}
        for x in rows:
            if int(x["kind"]) & ev.KIND_MASK in (ev.ALLOCATED, ev.RECYCLED):
                popped.setdefault((int(x["req"]), int(x["kind"]) >> ev.KIND_BITS), []).append(int(x["arg"]))
        out = {}
        for row in batch:
            if row.kind != 2:
                blocks = self._table(int(row.slot))
            else:
                per_group = [popped.get((int(row.req), g), []) for g in range(len(self.engine.settings.groups))]
                blocks = per_group if self.several else per_group[0]
            if any(blocks):
                out[self._id(row.req)] = blocks
        return out

    def _pool(self, record: dict[str, Any], suffix: str) -> None:
        c, step = self.engine.counters, record["s"]
        queue = self.engine.free_queue().tolist()
        self.compare.equal(step, "free" + suffix, record["free" + suffix], int(c.free))
        usage = 1.0 - int(c.free) / (int(self.engine.config.num_blocks) - 1)
        self.compare.equal(step, "usage" + suffix, record["usage" + suffix], round(usage, 9))
        if "fq" + suffix in record:
            self.compare.equal(step, "fq" + suffix, record["fq" + suffix], queue)
        self.compare.equal(step, "fqd" + suffix, record["fqd" + suffix], zlib.crc32(json.dumps(queue).encode()))

    def _processed(self, record: dict[str, Any]) -> None:
        e, equal, step = self.engine.state, self.compare.equal, record["s"]
        in_flight = int(self.engine.counters.in_flight)
        oldest = int(self.engine.counters.batch) if in_flight == 2 else 1 - int(self.engine.counters.batch)
        before = self.engine.mark()
        batch = e.batches[oldest].copy()
        rows = [(int(x.req), bool(x.sampled), int(x.computed) + int(x.n)) for x in e.rows[oldest][: int(batch.rows)]]
        known = {r: int(e.reqs[r].status) for r, _, _ in rows}
        first_token = {r: int(e.reqs[r].stale) for r, _, _ in rows}
        if not equal(step, "turn", PROCESSED, self.engine.advance(pause=True)):
            return
        e, c = self.engine.state, self.engine.counters
        processed = in_flight > int(c.in_flight)
        if not equal(step, "output processed", "fin" in record, processed):
            return
        turn = self.engine.steps[-1]
        self.stored_since += int(turn["stored"])
        self.removed_since += int(turn["removed"])
        if not processed:
            return
        events = self.engine.events_since(before)
        if "upd" in record:
            equal(step, "upd", record["upd"], int(self.engine.steps[int(batch.turn)]["schedule"]))
        finished = [x for x in events if x["kind"] == ev.FINISHED]
        equal(step, "fin", record["fin"], [[self._id(x["req"]), "length"] for x in finished])
        if "out" in record:
            equal(step, "out", record["out"], self._outputs(rows, known, first_token))
        self._pool(record, "2")
        self._accounts(record, events)

    def _accounts(self, record: dict[str, Any], events: np.ndarray) -> None:
        """What stands at the end of a record: keys, events and statistics since the last output."""
        equal, step = self.compare.equal, record["s"]
        equal(step, "cached2", record["cached2"], int(self.engine.counters.cached))
        cleared = self.wire.take()
        if self.published:
            equal(step, "evn", record["evn"], [self.stored_since, self.removed_since, cleared])
        self.stored_since = self.removed_since = 0
        equal(step, "pc", {k: record["pc"][k] for k in STATISTICS}, dict(zip(STATISTICS, self._new_statistics(), strict=True)))
        if "ev" in record:
            equal(step, "ev", record["ev"], self.wire.events(self.hash_hex) if self.published else [])

    def _new_statistics(self) -> list[int]:
        """Of the local cache, since the last output."""
        now = self._statistics()
        new = [a - b for a, b in zip(now, self.statistics, strict=True)]
        self.statistics = now
        return new

    def _outputs(self, rows: list[tuple[int, bool, int]], status: dict[int, int], stale: dict[int, int]) -> dict[str, int]:
        """Tokens the engine handed out in this turn: of requests still known whose output was not dropped."""
        out = {}
        for r, sampled, upto in rows:
            dropped = stale[r] > 0 and bool(self.engine.state.reqs[r].drop)
            if not sampled or status[r] not in (1, 2) or dropped:
                continue
            if r not in self.outputs:
                self.outputs[r] = tokens_of(self.workload, r)
            out[self._id(r)] = int(self.outputs[r][upto]) if upto < len(self.outputs[r]) else 0
        return out

    def _end(self, record: dict[str, Any]) -> None:
        why = self.engine.advance(pause=True)
        self.compare.equal(None, "end", True, why in (DONE, STALLED))
        c = self.engine.counters
        for name, counter in TOTALS.items():
            if name in FROM_EVENTS and not self.published:
                continue
            self.compare.equal(None, f"total {name}", record[name], self._counter(counter, c))
        if self.engine.config.virtual:
            self.compare.equal(None, "t_end", record["t_end"], round(float(c.now), 9))

    def _counter(self, name: str, c: np.void) -> int:
        return int(c["turns" if name == "steps" else name])
