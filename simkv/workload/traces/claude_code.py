"""Claude Code sessions (kv-cache-tester, WEKA): one JSON a session, read alone or as a folder of them.

``{id, block_size, hash_id_scope, requests: [{t s, type, in, out, hash_ids, api_time?, think_time?} or a subagent]}``.

* A hash id names a full block of ``block_size`` (64) tokens; what is left of a prompt has no id and is content of its own.
* Ids of scope ``local`` mean nothing outside their session, so each session's ids are renamed; what sessions really
  share (tool definitions, system prompt) cannot be seen. Ids of scope ``global`` are kept.
* Answers are content of their own: the next prompt's new blocks hold the answer, but not at a known place.
* Sessions have no common clock: all of them begin at 0.
* A subagent's ``t`` is its *end*: it began ``duration_ms`` before that (in every session this falls right after the answer
  that started it), and the ``t`` of its requests counts from there.

Pacing: ``recorded`` takes the times as they were. ``closed`` makes each request wait for the answer before it, then for
the recorded think time; a subagent waits for the answer that started it, and the parent's next request for whichever
of the parent's last answer and the subagents' ended last in the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import at_least_one, block_runs, dense, order_of_arrival, take, take_lists, with_tails
from simkv.workload.rows import Row, Tally, Where, kind
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import F8, I8, Workload

DEFAULT_BLOCK = 64
MOST_NESTED = 8


@dataclass(slots=True)
class Leaf:
    """One request of a session."""

    name: str
    row: Row
    start: float
    end: float
    after: int
    wait: float


@dataclass(slots=True)
class Session:
    """A session's requests, each after those it may depend on."""

    name: str
    block: int
    is_global: bool
    leaves: list[Leaf] = field(default_factory=list)


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with file and field of what cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    sessions = []
    with gc_paused():
        for part in _files(source, options, tally):
            try:
                session = _session(part, tally)
            except InputError as e:
                tally.rows += 1
                tally.bad(e)
                continue
            if session.leaves:
                sessions.append(session)
        tally.needs_rows(sum(len(s.leaves) for s in sessions))
        ids, counts = _ids(sessions)
    return _workload(source.name, sessions, ids, counts, options, tally)


def _workload(name: str, sessions: list[Session], ids: I8, counts: I8, options: Options, tally: Tally) -> Workload:
    leaves = [leaf for s in sessions for leaf in s.leaves]
    sizes = np.array([len(s.leaves) for s in sessions])
    session = np.repeat(np.arange(len(sessions)), sizes)
    block = np.repeat(np.array([s.block for s in sessions], np.int64), sizes)
    num_prompt = np.array([leaf.row["in"] for leaf in leaves], np.int64)
    num_output = at_least_one(np.array([leaf.row["out"] for leaf in leaves], np.int64), tally, "out")
    arrive = np.array([leaf.start for leaf in leaves], np.float64)
    after = np.array([leaf.after for leaf in leaves], np.int64)
    after = np.where(after >= 0, after + np.repeat(np.cumsum(sizes) - sizes, sizes), -1)
    if len(sessions) > 1:
        tally.notes.append(
            f"{len(sessions)} sessions without a common clock: all begin at 0, and share nothing unless their ids are global."
        )
    ids, counts = with_tails(ids, counts, num_prompt, block)
    order = order_of_arrival(_not_before(arrive, after), options.limit, Tally(name, False))
    if options.limit is not None and options.limit < len(arrive):
        tally.notes.append(f"Limited to the first {options.limit:,} of {len(arrive):,} requests.")
    ids, counts = take_lists(order, ids, counts)
    closed = options.think == "closed"
    if closed:
        arrive = np.where(after >= 0, np.array([leaf.wait for leaf in leaves]), arrive)
    place = np.arange(len(arrive))
    if order is not None:
        place = np.full(len(arrive), -1)
        place[order] = np.arange(len(order))
    arrive, num_prompt, num_output, session, after, block = take(order, arrive, num_prompt, num_output, session, after, block)
    runs, first = block_runs(ids, counts, num_prompt, num_output, block, packed=True)
    picked = range(len(leaves)) if order is None else order.tolist()
    return Workload(
        name,
        "claude-code",
        arrive,
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        ids=[leaves[i].name for i in picked],
        after=np.where(after < 0, -1, place[after]).astype(np.int32) if closed else None,
        session=session.astype(np.int32),
        sessions=tuple(s.name for s in sessions),
        report=tally.report(),
    )


def _not_before(arrive: F8, after: I8) -> F8:
    """Recorded starts, but never before a predecessor's: clocks of nested sessions are rounded."""
    out = arrive.copy()
    for i in np.flatnonzero(after >= 0).tolist():
        out[i] = max(out[i], out[after[i]])
    return out


def _files(source: Source, options: Options, tally: Tally) -> list[Source]:
    if not source.is_folder or source.path is None:
        return [source]
    paths = sorted(p for p in source.path.iterdir() if p.is_file() and p.name.endswith((".json", ".json.gz")))
    if not paths:
        raise InputError("no session files in the folder", file=source.name, expected="*.json or *.json.gz, one a session")
    return [part for path in paths if (part := _file(path, options, tally)) is not None]


def _file(path: Path, options: Options, tally: Tally) -> Source | None:
    try:
        return Source.from_path(path, options.max_bytes)
    except InputError as e:
        tally.rows += 1
        tally.bad(e)
        return None


def _session(source: Source, tally: Tally) -> Session:
    where = Where(source.name, None)
    document = source.parsed()
    if not isinstance(document, dict):
        raise where.error(f"found {kind(document)}", expected="a session: an object with requests and hash ids")
    name = document.get("id") if isinstance(document.get("id"), str) and document.get("id") else source.name
    block = where.whole(document, "block_size", low=1, high=65536) if "block_size" in document else DEFAULT_BLOCK
    session = Session(str(name)[:80], block, document.get("hash_id_scope") == "global")
    _walk(session, document, "requests", where, tally, 0.0, -1, session.name, 0)
    return session


def _walk(s: Session, holder: Row, at: str, where: Where, tally: Tally, clock: float, last: int, name: str, depth: int) -> int:
    """Add a list of requests, nested ones where they stand. Returns the leaf that ended last (an index, or ``last``)."""
    rows = where.value(holder, "requests", "a list of requests")
    if not isinstance(rows, list):
        raise where.error(f"the value is {kind(rows)}", at, "a list of requests")
    if depth > MOST_NESTED:
        raise where.error("nested too deeply", at, f"at most {MOST_NESTED} levels of subagents")
    latest, previous, number = last, last, 0
    for k, row in enumerate(rows):
        here = f"{at}[{k}]"
        if isinstance(row, dict) and isinstance(row.get("requests"), list):
            try:
                begin = clock + _begin(row, here, where)
                agent = row.get("agent_id") if isinstance(row.get("agent_id"), str) else f"agent_{k}"
                ended = _walk(s, row, f"{here}.requests", where, tally, begin, previous, f"{name}/{str(agent)[:40]}", depth + 1)
            except InputError as e:
                lost = _requests_in(row)
                tally.rows += lost
                tally.bad(e, lost)
                continue
            latest = max(latest, ended, key=lambda i: s.leaves[i].end if i >= 0 else -1.0)
            continue
        tally.rows += 1
        try:
            start, api = _check(row, here, where, s.block)
        except InputError as e:
            tally.bad(e)
            continue
        start += clock
        waited = max(start - s.leaves[latest].end, 0.0) if latest >= 0 else 0.0
        if latest == previous and number and row.get("think_time") is not None:
            waited = float(row["think_time"])
        s.leaves.append(Leaf(f"{name}/{number}", row, start, start + api, latest, waited))
        number += 1
        latest = previous = len(s.leaves) - 1
    return latest


def _begin(row: Row, at: str, where: Where) -> float:
    """When a subagent began: its ``t`` is when it ended."""
    named = {f"{at}.{k}": v for k, v in row.items()}
    lasted = where.number(named, f"{at}.duration_ms") / 1e3 if row.get("duration_ms") is not None else 0.0
    return max(where.number(named, f"{at}.t") - lasted, 0.0)


def _requests_in(row: Row) -> int:
    """How many requests a subagent made, its own subagents' included."""
    count, left = 0, [row]
    while left:
        for inner in left.pop()["requests"]:
            if isinstance(inner, dict) and isinstance(inner.get("requests"), list):
                left.append(inner)
            else:
                count += 1
    return count


def _check(row: Any, at: str, where: Where, block: int) -> tuple[float, float]:
    """``(t, api_time)`` of a usable request, else InputError."""
    if not isinstance(row, dict):
        raise where.error(f"found {kind(row)}", at, "a request with t, in, out and hash_ids")
    for name in ("in", "out", "hash_ids", "t"):
        where.value(row, name, "a value in every request") if name in row else where.value({}, f"{at}.{name}", "a value in every request")
    named = {f"{at}.{k}": v for k, v in row.items()}
    length = where.whole(named, f"{at}.in", low=1)
    row["in"], row["out"] = length, where.whole(named, f"{at}.out")
    ids = where.ids(named, f"{at}.hash_ids")
    if len(ids) not in (length // block, -(-length // block)):
        expected = f"{length // block} ids, one for each {block} tokens of in"
        raise where.error(f"{len(ids)} ids for {length} tokens", f"{at}.hash_ids", expected)
    for name in ("think_time", "api_time"):
        if row.get(name) is not None:
            where.number(named, f"{at}.{name}")
    return where.number(named, f"{at}.t"), float(row.get("api_time") or row.get("ttft") or 0.0)


def _ids(sessions: list[Session]) -> tuple[I8, I8]:
    """All block ids, flat: global ones kept, each other session's moved to numbers of its own."""
    parts, counts, shared = [], [], []
    for s in sessions:
        lists = [leaf.row["hash_ids"] for leaf in s.leaves]
        counts += list(map(len, lists))
        parts.append(dense(np.fromiter(chain.from_iterable(lists), np.int64, sum(map(len, lists)))))
        shared.append(s.is_global)
    base = 1 + max((int(p.max()) for p, g in zip(parts, shared, strict=True) if g and len(p)), default=-1)
    for k, part in enumerate(parts):
        if not shared[k] and len(part):
            parts[k] = part + base
            base += int(part.max()) + 1
    return np.concatenate(parts), np.array(counts, np.int64)
