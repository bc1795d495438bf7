"""Qwen-Bailian traces (ATC'25): JSON lines ``{chat_id, parent_chat_id, timestamp s, input_length, output_length, type, turn, hash_ids}``.

Times are seconds. A hash id names the *content* of a 16-token block (salted SipHash of the block, renamed), not its
prefix; the block keys of the engine chain them, so both readings give the same hits. A last block that is not full may
or may not have an id; without one it is content of its own. ``parent_chat_id`` links turns: the chat a request belongs
to becomes ``Workload.session``. A parent that is not in the file (the recording began later, or rows were dropped)
makes the request the first of its session. Answers are content of their own: the trace does not say which block of the
next turn holds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.workload.assemble import at_least_one, block_runs, dense, order_of_arrival, take, take_lists, with_tails
from simkv.workload.rows import Odd, Row, Tally, Where, has_words, id_lists, kind, number_column, read_columns, whole_column
from simkv.workload.source import Options, Source
from simkv.workload.workload import I8, Workload

BLOCK = 16
LARGEST_ID = (1 << 62) - 1


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    words, seen = has_words(source), set[int]()

    def check(row: Row, line: int) -> None:
        nonlocal words
        words = False  # from here on every row has been looked at
        _check(row, Where(source.name, line), seen)

    c = read_columns(source, tally, lambda rows: _columns(rows, words), _verify, check, _plain)
    ids, counts = with_tails(dense(c["ids"]), c["counts"], c["input_length"], BLOCK)
    num_output = at_least_one(c["output_length"], tally, "output_length")
    order = order_of_arrival(c["timestamp"], options.limit, tally)
    ids, counts = take_lists(order, ids, counts)
    roots = _roots(c["chat_id"], c["parent_chat_id"], tally)
    arrive, num_prompt, num_output, roots, chats = take(order, c["timestamp"], c["input_length"], num_output, roots, c["chat_id"])
    first_seen, session = _in_order(roots)
    runs, first = block_runs(ids, counts, num_prompt, num_output, BLOCK, packed=True)
    return Workload(
        source.name,
        "bailian",
        arrive - arrive[0],
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        ids=[str(x) for x in chats.tolist()],
        session=session.astype(np.int32),
        sessions=tuple(str(x) for x in c["chat_id"][first_seen].tolist()),
        report=tally.report(),
    )


def _columns(rows: list[Row], words: bool) -> dict[str, Any]:
    num_prompt = whole_column([r["input_length"] for r in rows], low=1)
    ids, counts = id_lists([r["hash_ids"] for r in rows], words)
    return {
        "timestamp": number_column([r["timestamp"] for r in rows]),
        "input_length": num_prompt,
        "output_length": whole_column([r["output_length"] for r in rows]),
        "chat_id": whole_column([r["chat_id"] for r in rows], high=LARGEST_ID),
        "parent_chat_id": whole_column([r.get("parent_chat_id", -1) for r in rows], low=-1, high=LARGEST_ID),
        "ids": ids,
        "counts": counts,
    }


def _verify(c: dict[str, Any]) -> None:
    full, counts, chats = c["input_length"] // BLOCK, c["counts"], c["chat_id"]
    if not ((counts == full) | (counts == -(-c["input_length"] // BLOCK))).all() or len(np.unique(chats)) < len(chats):
        raise Odd


def _roots(chats: I8, parents: I8, tally: Tally) -> I8:
    """The row of each request's first turn."""
    by_id = np.argsort(chats, kind="stable")
    at = np.minimum(np.searchsorted(chats, parents, sorter=by_id), len(chats) - 1)
    found = chats[by_id[at]] == parents
    lost = int(np.count_nonzero(~found & (parents >= 0)))
    if lost:
        tally.notes.append(f"{lost} request{'s' * (lost > 1)} whose parent_chat_id is not in the file: each begins a session.")
    root = np.where(found, by_id[at], np.arange(len(chats)))
    for _ in range(64):  # pointers double in length: enough for any chain, and a circle ends too
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    return root


def _in_order(roots: I8) -> tuple[I8, I8]:
    """Roots as numbers in order of appearance: ``(root of each number, number of each request)``."""
    values, first, number = np.unique(roots, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], rank[number]


def _plain(row: Row) -> Row:
    whole = {k: int(row[k]) for k in ("input_length", "output_length", "chat_id")}
    return {**row, **whole, "parent_chat_id": int(row.get("parent_chat_id", -1))}


def _check(row: Row, where: Where, seen: set[int]) -> None:
    where.number(row, "timestamp")
    length = where.whole(row, "input_length", low=1)
    where.whole(row, "output_length")
    chat = where.whole(row, "chat_id", high=LARGEST_ID)
    if "parent_chat_id" in row:
        where.whole(row, "parent_chat_id", low=-1, high=LARGEST_ID)
    if chat in seen:
        raise where.error(f"the value {kind(chat)} stands in an earlier row", "chat_id", "a different id for every request")
    ids = where.ids(row, "hash_ids")
    if len(ids) not in (length // BLOCK, -(-length // BLOCK)):
        expected = f"{length // BLOCK} or {-(-length // BLOCK)} ids, one for each {BLOCK} tokens of input_length"
        raise where.error(f"{len(ids)} ids for {length} tokens", "hash_ids", expected)
    seen.add(chat)
