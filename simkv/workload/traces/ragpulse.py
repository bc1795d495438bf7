"""RAGPulse: JSON lines with ``hash_ids`` as an object of chunks: system prompt, passages, history, web search, user input.

Chunks have their own lengths, kept in side files beside the trace (``1_sys_prompt.jsonl`` … ``5_web_search.jsonl``,
gzip or not); without them (an upload) the bundled ones are used. Ids name content, not prefixes: the same passage at
another place is the same content, and prefix caching finds it only if everything before it is equal too. Times are
texts of seconds. ``input_length`` exceeds the sum of the chunks by the 6 to 12 tokens of the chat template; where they
stood is not recorded, so they are content of their own at the end of the prompt (nothing is shared that might not be).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import at_least_one, chunk_runs, codes, order_of_arrival, take, take_lists
from simkv.workload.bundled import bundled
from simkv.workload.rows import (
    Odd,
    Row,
    Tally,
    Where,
    flat_ids,
    has_words,
    kind,
    number_column,
    read_columns,
    whole_column,
)
from simkv.workload.source import FILE_LIMIT, Options, Source, gc_paused
from simkv.workload.workload import I8, Workload

SIDE_FILES = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")
TRACE = "0_trace"
LARGEST_ID = 1 << 28


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with file, line and field for what cannot be used."""
    if source.is_folder and source.path is not None:
        source = Source.from_path(_find(source.path, TRACE, source.name), options.max_bytes)
    tally = Tally(source.name, options.skip_bad_rows)
    with gc_paused():
        lengths = _chunk_lengths(source, options, tally)
    words = has_words(source)

    def check(row: Row, line: int) -> None:
        nonlocal words
        words = False  # from here on every row has been looked at
        _check(row, Where(source.name, line), lengths)

    c = read_columns(source, tally, lambda rows: _columns(rows, lengths, words), lambda c: None, check, _plain)
    num_output = at_least_one(c["output_length"], tally, "output_length")
    order = order_of_arrival(c["timestamp"], options.limit, tally)
    ids, counts = take_lists(order, c["ids"], c["counts"])
    arrive, num_prompt, num_output, sessions = take(order, c["timestamp"], c["input_length"], num_output, np.array(c["session_id"], object))
    numbers, names = codes(sessions.tolist())
    rest = num_prompt - np.add.reduceat(np.append(lengths[ids], 0), np.cumsum(counts) - counts) * (counts > 0)
    runs, first = chunk_runs(ids, lengths[ids], counts, rest, num_output, len(lengths))
    return Workload(
        source.name,
        "ragpulse",
        arrive - arrive[0],
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        session=numbers,
        sessions=names,
        report=tally.report(),
    )


def _find(folder: Path, stem: str, name: str) -> Path:
    for suffix in (".jsonl", ".jsonl.gz"):
        if (path := folder / (stem + suffix)).is_file():
            return path
    raise InputError(
        f"{stem}.jsonl is missing", file=name, expected="the trace and its side files " + ", ".join(SIDE_FILES) + " in one folder"
    )


def _chunk_lengths(source: Source, options: Options, tally: Tally) -> I8:
    """Tokens of every chunk, by id; 0 where there is none."""
    folder = source.path.parent if source.path is not None else None
    if folder is not None and any(folder.glob(SIDE_FILES[0] + ".jsonl*")):
        return _lengths_in(folder, source.name, options.max_bytes)
    known = bundled().get("ragpulse")
    if known is None:
        hint = "Read the trace from a folder that has them"
        raise InputError("chunk lengths are missing", file=source.name, expected="side files " + ", ".join(SIDE_FILES), hint=hint)
    tally.notes.append("No side files beside the trace: chunk lengths are those of the published trace.")
    return _published(known)


@cache
def _published(folder: Path) -> I8:
    return _lengths_in(folder, folder.name, FILE_LIMIT)


def _lengths_in(folder: Path, name: str, max_bytes: int) -> I8:
    ids, tokens = [], []
    for stem in SIDE_FILES:
        side = Source.from_path(_find(folder, stem, name), max_bytes)
        field = stem[2:].removesuffix("s") + "_id"

        def check(row: Row, line: int, file: str = side.name, field: str = field) -> None:
            Where(file, line).whole(row, field, high=LARGEST_ID)
            Where(file, line).whole(row, "token_length", low=1, high=1 << 24)

        def columns(rows: list[Row], field: str = field) -> dict[str, I8]:
            lengths = whole_column([r["token_length"] for r in rows], low=1, high=1 << 24)
            return {"id": whole_column([r[field] for r in rows], high=LARGEST_ID), "n": lengths}

        def plain(row: Row, field: str = field) -> Row:
            return {field: int(row[field]), "token_length": int(row["token_length"])}

        c = read_columns(side, Tally(side.name, False), columns, lambda c: None, check, plain)
        ids.append(c["id"])
        tokens.append(c["n"])
    out = np.zeros(max(int(x.max()) for x in ids) + 1, np.int64)
    for k, n in zip(ids, tokens, strict=True):
        out[k] = n
    return out


def _columns(rows: list[Row], lengths: I8, words: bool) -> dict[str, Any]:
    if words:
        raise Odd
    lists = [[x for part in r["hash_ids"].values() for x in part] for r in rows]
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = flat_ids((x for part in lists for x in part), int(counts.sum()))
    num_prompt = whole_column([r["input_length"] for r in rows], low=1)
    if len(ids) and (ids.max() >= len(lengths) or lengths[ids].min() == 0):
        raise Odd
    owner = np.repeat(np.arange(len(rows)), counts)
    if (np.bincount(owner, lengths[ids], len(rows)) > num_prompt).any():
        raise Odd
    texts = [r["timestamp"] for r in rows]
    if any("_" in str(t) for t in texts):
        raise Odd
    sessions = [r.get("session_id", "") for r in rows]
    if set(map(type, sessions)) - {str}:
        raise Odd
    return {
        "timestamp": number_column(list(map(float, texts))),
        "input_length": num_prompt,
        "output_length": whole_column([r["output_length"] for r in rows]),
        "session_id": sessions,
        "ids": ids,
        "counts": counts,
    }


def _plain(row: Row) -> Row:
    return {**row, "input_length": int(row["input_length"]), "output_length": int(row["output_length"])}


def _check(row: Row, where: Where, lengths: I8) -> None:
    text = where.value(row, "timestamp", "seconds, as a text or a number")
    try:
        if isinstance(text, bool) or "_" in str(text):
            raise ValueError
        where.number({"timestamp": float(text)}, "timestamp")
    except (TypeError, ValueError):
        raise where.error(f"the value is {kind(text)}", "timestamp", "seconds, as a text or a number") from None
    length = where.whole(row, "input_length", low=1)
    where.whole(row, "output_length")
    chunks = where.value(row, "hash_ids", "an object of lists of chunk ids")
    if not isinstance(chunks, dict):
        raise where.error(f"the value is {kind(chunks)}", "hash_ids", "an object of lists of chunk ids")
    total = 0
    for part in chunks:
        for x in where.ids({f"hash_ids.{part}": chunks[part]}, f"hash_ids.{part}"):
            if x >= len(lengths) or lengths[x] == 0:
                raise where.error(
                    f"chunk {x} has no length", f"hash_ids.{part}", "an id from the side files", "They may belong to another trace"
                )
            total += int(lengths[x])
    if total > length:
        raise where.error(f"the chunks have {total} tokens", "input_length", f"at least {total}, not {length}")
    if not isinstance(row.get("session_id", ""), str):
        raise where.error(f"the value is {kind(row['session_id'])}", "session_id", "a text")
