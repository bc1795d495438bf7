"""Replay a run recorded from SGLang's real scheduler and radix cache, and compare every field of every record.

A recording is ``NAME.workload.json[.gz]`` beside ``NAME.python.jsonl[.gz]`` (one record per scheduling pass or cache
operation: queue order, admissions with their slots, evicted nodes in order, the batch, what finished and was retracted,
new_token_ratio, queues, sizes, and the whole tree with slots, locks, hit counts, priorities and order of recency).
``rust`` in place of ``python`` says that SGLang's compiled tree was recorded. A log may have only its summary (snapshots = none).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simkv.conformance.records import records
from simkv.conformance.result import Comparison, RunResult
from simkv.conformance.sglang_ops import OperationReplay
from simkv.conformance.sglang_tree import compare_tree, evicted_nodes, sizes, tree
from simkv.engine.contract import SCHEDULED
from simkv.engine.sglang.config import from_recording
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.sglang.layout import DECODE, NO_BATCH, RUNNING
from simkv.engine.step_time import step_index
from simkv.errors import InputError
from simkv.workload.registry import read_workload
from simkv.workload.source import FILE_LIMIT, Source

LONGEST_ROW = 256
"""Up to so many tokens a record holds an admission's whole row, else only what was computed."""
STUCK = 6
"""Passes without a batch, nothing running and nobody to come: the recording tool ends there."""
KINDS = {NO_BATCH: "idle", DECODE: "decode"}


def check_sglang(input_path: Path, log_path: Path) -> RunResult:
    """Compare one recording; see the module's text. Raises InputError for files that are not a recording."""
    name = input_path.name.split(".workload.json")[0]
    document = Source.from_path(input_path, FILE_LIMIT).parsed()
    if not isinstance(document, dict):
        raise InputError("no JSON object", file=str(input_path), expected="config and requests, or config and ops")
    config = from_recording(document.get("config") or {})
    if "ops" in document:
        return OperationReplay(name, document["ops"], config).run(records(log_path))
    workload = read_workload(input_path, format="sglang")
    engine = SglangEngine(workload, config, step_index().record(), log=True)
    return _Replay(name, engine).run(records(log_path))


class _Replay:
    """One replay beside its recording."""

    def __init__(self, name: str, engine: SglangEngine) -> None:
        self.engine, self.workload = engine, engine.workload
        self.compare = Comparison(name)
        self.page = int(engine.config.page)
        self.numbers = {self.workload.id(i): i for i in range(len(self.workload))}
        self.prefill_tokens = self.passes = 0
        self.max_steps = 1 << 31

    def run(self, log: Iterator[dict[str, Any]]) -> RunResult:
        first = next(log, {})
        if first.get("ev") != "config":
            raise InputError("no config record", file=self.compare.run, expected="a log whose first record has ev = config")
        self.max_steps = int(first.get("cfg", {}).get("max_steps", self.max_steps))
        cfg = self.engine.config
        ratio = {"init": float(cfg.ratio_init), "min": float(cfg.ratio_min), "decay": float(cfg.ratio_decay)}
        self.compare.equal(None, "new_token_ratio", first["new_token_ratio"], ratio)
        recorded = first.get("cfg") or {}
        ended = False
        for record in log:
            if self.compare.difference is not None:
                break
            if record["ev"] == "summary" and recorded.get("snapshots") == "none":
                self._alone(recorded.get("max_steps", record["steps"]))
            if record["ev"] == "step":
                self._step(record)
            elif record["ev"] == "summary":
                ended = True
                self._summary(record)
        if not ended and self.compare.difference is None:
            raise InputError("the log stops before its summary", file=self.compare.run, expected="a whole recording")
        return self.compare.result()

    def _alone(self, most: int) -> None:
        """A log without passes: run as long as the recording tool would."""
        c, idle = self.engine.counters, 0
        while int(c.finished) < len(self.workload) and self.passes < most and idle < STUCK:
            if self.engine.advance(pause=True) != SCHEDULED:
                break
            self.passes = int(c.steps)
            idle = idle + 1 if c.last_kind == NO_BATCH and c.next_arrival == len(self.workload) else 0
            if c.last_kind not in KINDS:
                self.prefill_tokens += int(self.engine.state.batch["n"][: int(c.batch_n)].sum())
            self.engine.advance(pause=True)

    def _ids(self, requests: Any) -> list[str]:
        return [self.workload.id(int(r)) for r in requests]

    def _step(self, record: dict[str, Any]) -> None:
        engine, equal, step = self.engine, self.compare.equal, record["step"]
        self.passes = step + 1
        if "queue_order" in record and engine.choices.schedule_policy == "random":
            order = [self.numbers[x] for x in record["queue_order"]]
            engine.state.sorted[: len(order)] = order
            engine.config.given_order = 1
        waited = set(engine.waiting())
        done = int(engine.counters.finished) + int(engine.counters.aborted) == len(self.workload)
        if done and record["kind"] == "idle":
            equal(step, "idle", [], record["evicted"])
        else:
            if not equal(step, "pass", SCHEDULED, engine.advance(pause=True)):
                return
            equal(step, "step", step, int(engine.counters.steps) - 1)
            self._scheduled(record, waited)
            batch = engine.state.batch[: int(engine.counters.batch_n)].copy()
            before = engine.state.reqs["status"].copy()
            engine.advance(pause=True)
            ended = [r for r in batch["req"] if before[r] == RUNNING and engine.state.reqs["status"][r] != RUNNING]
            equal(step, "finished", record.get("finished", []), self._ids(ended))
        self._state(record)

    def _scheduled(self, record: dict[str, Any], waited: set[int]) -> None:
        e, c, equal, step = self.engine.state, self.engine.counters, self.compare.equal, record["step"]
        equal(step, "kind", record["kind"], KINDS.get(int(c.last_kind), "prefill"))
        equal(step, "evicted", record["evicted"], evicted_nodes(e, self.page, int(c.victims)))
        equal(step, "queue_order", "queue_order" in record, bool(c.ordered))
        if "queue_order" in record:
            order = e.ordered[: int(c.ordered_n)]
            equal(step, "queue_order", record["queue_order"], self._ids(order))
        arrived = [r for r in self.engine.waiting() if r not in waited]
        retracted = [r for r in arrived if e.reqs[r].preempted > 0 and r in set(e.thrown_back[: int(c.retracted)].tolist())]
        equal(step, "retracted", record.get("retracted", []), self._ids(retracted))
        batch = e.batch[: int(c.batch_n)]
        if record["kind"] == "prefill":
            equal(
                step,
                "admitted",
                record["admitted"],
                [self._admission(row, "row" in a) for row, a in zip(batch, record["admitted"], strict=False)],
            )
            equal(step, "admitted requests", len(record["admitted"]), len(batch))
            self.prefill_tokens += int(batch["n"].sum())
        elif record["kind"] == "decode":
            equal(step, "batch", record["batch"], self._ids(batch["req"]))

    def _admission(self, row: Any, with_row: bool) -> dict[str, Any]:
        e, c, page = self.engine.state, self.engine.counters, self.page
        end = int(row.prefix + row.n)
        out: dict[str, Any] = {"rid": self.workload.id(int(row.req)), "prefix": int(row.prefix), "extend": int(row.n)}
        if row.req == c.chunked:
            out["chunked"] = True
        if with_row:
            position = np.arange(0 if end <= LONGEST_ROW else int(row.prefix), end)
            pages = e.rows[e.reqs[row.req].slot].astype(np.int64)
            out["row"] = (pages[position // page] * page + position % page).tolist()
        return out

    def _state(self, record: dict[str, Any]) -> None:
        e, c, equal, step = self.engine.state, self.engine.counters, self.compare.equal, record["step"]
        if "new_token_ratio" in record:
            equal(step, "new_token_ratio", record["new_token_ratio"], round(float(c.ratio), 6))
            equal(step, "waiting", record["waiting"], self._ids(self.engine.waiting()))
            running = [r for r in e.running[: int(c.in_running)] if e.reqs[r].status == RUNNING]
            equal(step, "running", record["running"], self._ids(running))
            equal(step, "sizes", record["sizes"], sizes(self.engine.config, c))
        if "tree" in record:
            compare_tree(equal, step, "tree", record["tree"], tree(e, self.engine.config, c, self.engine.names))

    def _steps(self, recorded: int) -> int:
        """Passes so far; a recording cut at its max_steps may end with a jump to an arrival that nothing recorded."""
        return recorded if recorded >= self.max_steps else self.passes

    def _summary(self, record: dict[str, Any]) -> None:
        c, equal = self.engine.counters, self.compare.equal
        hits = int(c.hits) + int(c.recompute_hits)
        for name, value in (
            ("steps", self._steps(record["steps"])),
            ("finished", int(c.finished)),
            ("hit_tokens", hits),
            ("prefill_tokens", self.prefill_tokens),
            ("hit_rate", round(hits / max(1, hits + self.prefill_tokens), 6)),
            ("retractions", int(c.preemptions)),
            ("sizes", sizes(self.engine.config, c)),
        ):
            equal(None, f"summary {name}", record[name], value)
        if "tree" in record:
            mine = tree(self.engine.state, self.engine.config, c, self.engine.names)
            compare_tree(equal, None, "final tree", record["tree"], mine)
