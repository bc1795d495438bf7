"""Recorded cache operations without a scheduler, replayed one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from simkv.conformance.result import Comparison, RunResult
from simkv.conformance.sglang_tree import compare_tree, evicted_nodes, sizes, tree
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.layout import OPERATION_KINDS
from simkv.engine.sglang.operations import SglangCache, operation_table
from simkv.errors import InputError
from simkv.workload.assemble import codes
from simkv.workload.rows import kind
from simkv.workload.workload import RUN, Workload

WITH_TOKENS = ("match", "insert")
FORMS = "[match or insert, name, [tokens], {extra_key?, cache_salt?, priority?}?], [lock or unlock, name], [evict, tokens] or [reset]"


def read_operations(ops: Any, name: str) -> tuple[Workload, np.ndarray, np.ndarray, list[str]]:
    """``(contents, OPERATION[m], content of each operation or -1, names)``. Raises InputError for what is no operation."""
    if not isinstance(ops, list):
        raise InputError("not a list of operations", file=name, field="ops", expected="[[kind, …], …]")
    for i, op in enumerate(ops):
        if not _is_operation(op):
            raise InputError(f"found {kind(op)}", file=name, field=f"ops[{i}]", expected=FORMS)
    table = operation_table([OPERATION_KINDS.index(op[0]) for op in ops])
    content_of = np.full(len(ops), -1)
    names: dict[str, int] = {}
    prompts: list[list[int]] = []
    options: list[dict[str, Any]] = []
    for i, op in enumerate(ops):
        if op[0] in WITH_TOKENS:
            content_of[i] = len(prompts)
            prompts.append(op[2])
            options.append(op[3] if len(op) > 3 else {})
            table["priority"][i] = options[-1].get("priority", 0)
        if op[0] == "evict":
            table["n"][i] = op[1]
        elif op[0] != "reset":
            table["name"][i] = names.setdefault(op[1], len(names))
    return _contents(prompts, options, name), table, content_of, list(names)


def _is_operation(op: Any) -> bool:
    if not isinstance(op, list) or not op or op[0] not in OPERATION_KINDS:
        return False
    if op[0] in WITH_TOKENS:
        return len(op) in (3, 4) and isinstance(op[1], str) and _are_tokens(op[2]) and _are_options(op[3] if len(op) == 4 else {})
    if op[0] == "evict":
        return len(op) == 2 and type(op[1]) is int and abs(op[1]) < 1 << 31
    return op[0] == "reset" or (len(op) == 2 and isinstance(op[1], str))


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(t) is int and 0 <= t < 1 << 31 for t in value)


def _are_options(value: Any) -> bool:
    if not isinstance(value, dict) or not all(isinstance(value.get(k), (str, type(None))) for k in ("extra_key", "cache_salt")):
        return False
    priority = value.get("priority", 0)
    return type(priority) is int and abs(priority) < 1 << 31


def _contents(prompts: list[list[int]], options: list[dict[str, Any]], name: str) -> Workload:
    n = len(prompts)
    lengths = np.array([len(p) for p in prompts], np.int64)
    runs = np.zeros(n, RUN)
    runs["seed"], runs["start"], runs["n"] = -1, np.cumsum(lengths) - lengths, lengths
    tokens = np.array([t for p in prompts for t in p], np.int32)
    extra = [o.get("extra_key") for o in options]
    texts = list(dict.fromkeys(x for x in extra if x is not None))
    salt, salts = codes([o.get("cache_salt") or "" for o in options], "")
    return Workload(
        name,
        "sglang",
        np.zeros(n),
        lengths.astype(np.int32),
        np.zeros(n, np.int32),
        np.arange(n + 1),
        runs,
        tokens,
        salt=salt,
        salts=salts,
        extra_key=np.array([-1 if x is None else texts.index(x) for x in extra], np.int32),
        extra_keys=tuple(texts),
    )


class OperationReplay:
    """Operations beside their recording."""

    def __init__(self, name: str, ops: Any, config: SglangConfig) -> None:
        contents, table, content_of, _ = read_operations(ops, name)
        self.ops, self.compare = ops, Comparison(name)
        self.cache = SglangCache(contents, config, table, content_of, len(ops))

    def run(self, log: Iterator[dict[str, Any]]) -> RunResult:
        """Compare every record."""
        final, ended, done = True, False, 0
        for record in log:
            if self.compare.difference is not None:
                break
            if record["ev"] == "config":
                final = record.get("cfg", {}).get("snapshots") != "none"
            elif record["ev"] == "op":
                self._operation(record)
                done += 1
            elif record["ev"] == "final":
                ended = True
                self._state(None, record)
        if not ended and (final or done < len(self.ops)) and self.compare.difference is None:
            raise InputError("the log stops before its final record", file=self.compare.run, expected="a whole recording")
        return self.compare.result()

    def _operation(self, record: dict[str, Any]) -> None:
        i, equal = record["i"], self.compare.equal
        self.cache.run(i, i + 1)
        got = self._record(i, self.ops[i])
        for field in sorted({*record, *got} - {"ev", "sizes", "tree"}):
            equal(i, field, record.get(field), got.get(field))
        self._state(i, record)

    def _record(self, i: int, asked: list[Any]) -> dict[str, Any]:
        """What the recording tool writes of an operation."""
        op, page = self.cache.operations[i], int(self.cache.config.page)
        out: dict[str, Any] = {"i": i, "op": asked[0]}
        if asked[0] in ("insert", "evict"):
            out["evicted"] = evicted_nodes(self.cache.state, page, int(op.victims))
        if asked[0] == "evict":
            return {**out, "asked": asked[1], "got": int(op.got)}
        if asked[0] == "reset":
            return out
        out["name"] = asked[1]
        if asked[0] not in WITH_TOKENS:
            return out
        out |= {"n": len(asked[2]), "matched": int(op.matched)}
        if op.failed:
            return {**out, "result": "no room"}
        if asked[0] == "insert":
            out["new"] = int(op.new)
        given = asked[3] if len(asked) > 3 else {}
        return out | {k: given[k] for k in ("extra_key", "cache_salt") if k in given}

    def _state(self, i: int | None, record: dict[str, Any]) -> None:
        cache, equal = self.cache, self.compare.equal
        equal(i, "sizes", record["sizes"], sizes(cache.config, cache.counters))
        if "tree" in record:
            compare_tree(equal, i, "tree", record["tree"], tree(cache.state, cache.config, cache.counters, cache.names))
