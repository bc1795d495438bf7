"""LMCache agent logs: JSON lines ``{timestamp µs, session_id, input, output}`` with the prompt as text.

``input`` is the whole flattened prompt of a call, ``output`` what the model answered; both become real tokens (of the
tokenizer the user names, else one a byte), so a next prompt that repeats an answer finds it in the cache. An empty
output is replayed with one token of its own. Sessions are ``Workload.session``; rows need not be sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import at_least_one, codes, order_of_arrival, take
from simkv.workload.content import encoder, explicit_requests
from simkv.workload.rows import MAX_LENGTH, Odd, Row, Tally, Where, kind, number_column, read_columns
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import Workload

LATEST_US = 1e17


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    encode = encoder(options.tokenizer)
    c = read_columns(source, tally, _columns, lambda c: None, lambda row, line: _check(row, Where(source.name, line)), lambda row: row)
    order = order_of_arrival(c["timestamp"], options.limit, tally)
    picked = range(len(c["timestamp"])) if order is None else order.tolist()
    with gc_paused():
        prompts = encode([c["input"][i] for i in picked])
        outputs = encode([c["output"][i] for i in picked])
    if not prompts[1].all():
        raise InputError(
            "a prompt has no tokens", file=source.name, field="input", expected="at least one token", hint="Try another tokenizer"
        )
    note_tokens(options, tally)
    num_output = at_least_one(outputs[1], tally, "output length")
    runs, first, tokens = explicit_requests(prompts, outputs, num_output, source.name)
    (arrive,) = take(order, c["timestamp"])
    numbers, names = codes([c["session_id"][i] for i in picked])
    return Workload(
        source.name,
        "lmcache",
        (arrive - arrive[0]) / 1e6,
        prompts[1].astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        tokens,
        session=numbers,
        sessions=names,
        report=tally.report(),
    )


def note_tokens(options: Options, tally: Tally) -> None:
    """Say what a token is when the user named no tokenizer."""
    if options.tokenizer in (None, "bytes"):
        tally.notes.append(
            "Text was read as one token a byte, about four times a tokenizer's count; name a tokenizer.json for real lengths."
        )


def _columns(rows: list[Row]) -> dict[str, Any]:
    texts = {name: [r[name] for r in rows] for name in ("input", "output")}
    texts["session_id"] = [r.get("session_id", "") for r in rows]
    if any(set(map(type, column)) - {str} for column in texts.values()) or not all(texts["input"]):
        raise Odd
    return {"timestamp": number_column([r["timestamp"] for r in rows], high=LATEST_US), **texts}


def _check(row: Row, where: Where) -> None:
    where.number(row, "timestamp", high=LATEST_US)
    for name in ("input", "output", "session_id"):
        text = row.get(name, "") if name == "session_id" else where.value(row, name, "a text")
        if not isinstance(text, str) or len(text) > MAX_LENGTH // 4:
            raise where.error(f"the value is {kind(text)}", name, "a text")
    if not row["input"]:
        raise where.error("the prompt is empty", "input", "at least one character")
