"""Lengths of chats without their text: JSON lines ``{conv, turns: [[role, tokens], …]}`` (roles human, gpt, system …).

Every answer (``gpt``) with something before it is a request whose prompt is the whole chat so far, earlier answers
included, so turn ``k + 1`` finds the prompt and the answer of turn ``k`` in the cache. The file has no times: a chat
begins every second, and each next turn follows the last answer at once (``Workload.after``).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.rows import MAX_LENGTH, Row, Tally, Where, kind
from simkv.workload.source import Options, Source, broken_json, gc_paused
from simkv.workload.workload import I8, RUN, Workload

ANSWERS = ("gpt", "assistant", "chatgpt", "model", "bing", "bard")


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    requests: list[tuple[float, int, int, int, int, int]] = []
    chats: list[str] = []
    offset = silent = 0
    with gc_paused():
        for line, text in source.lines():
            tally.rows += 1
            try:
                name, turns = _turns(text, Where(source.name, line))
            except InputError as e:
                tally.bad(e)
                continue
            before, last = 0, -1
            for role, n in turns:
                if role in ANSWERS and before and n:
                    requests.append((0.0 if last >= 0 else float(len(chats)), len(chats), offset, before, n, last))
                    last = len(requests) - 1
                before += n
            silent += last < 0
            offset += before
            chats.append(name)
    tally.needs_rows(len(requests))
    tally.notes.append("No times in the file: a chat begins every second, its next turn follows the last answer at once.")
    if silent:
        tally.notes.append(f"{silent} chats without an answer to anything make no request.")
    return _workload(source.name, np.array(requests), tuple(chats), options, tally)


def first_pairs(source: Source) -> tuple[I8, I8]:
    """Tokens of the first and of the second message of every chat that has two, whoever wrote them.

    That is the sample vLLM's serving benchmark draws from ShareGPT (vllm/benchmarks/datasets: prompt and answer are a
    conversation's first two messages). Shapes ``[chats]``, in order of the file.

    Raises:
        InputError: with line and field for a row that cannot be used.
    """
    pairs = []
    with gc_paused():
        for line, text in source.lines():
            _, turns = _turns(text, Where(source.name, line))
            if len(turns) >= 2:
                pairs.append((turns[0][1], turns[1][1]))
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _workload(name: str, table: Any, chats: tuple[str, ...], options: Options, tally: Tally) -> Workload:
    if options.limit is not None and options.limit < len(table):
        tally.notes.append(f"Limited to the first {options.limit:,} of {len(table):,} requests.")
        table = table[: options.limit]
    whole = table.astype(np.int64)
    n = len(table)
    runs = np.zeros(n, RUN)
    runs["seed"] = whole[:, 1]
    runs["n"] = whole[:, 3] + whole[:, 4]
    return Workload(
        name,
        "sharegpt-lengths",
        table[:, 0].copy(),
        whole[:, 3].astype(np.int32),
        whole[:, 4].astype(np.int32),
        np.arange(n + 1),
        runs,
        after=whole[:, 5].astype(np.int32),
        session=whole[:, 1].astype(np.int32),
        sessions=chats,
        report=tally.report(),
    )


def _turns(text: str, where: Where) -> tuple[str, list[tuple[str, int]]]:
    try:
        row: Row = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise broken_json(e, text, where.file, where.line or 1) from None
    if not isinstance(row, dict):
        raise where.error(f"found {kind(row)}", expected="a JSON object with conv and turns")
    turns = where.value(row, "turns", "a list of [role, tokens]")
    expected = "a list of [role, tokens], tokens a whole number of at least 0"
    if not isinstance(turns, list):
        raise where.error(f"the value is {kind(turns)}", "turns", expected)
    out, total = [], 0
    for k, turn in enumerate(turns):
        if not isinstance(turn, list) or len(turn) != 2 or not isinstance(turn[0], str):
            raise where.error(f"the value is {kind(turn)}", f"turns[{k}]", expected)
        out.append((turn[0].lower(), where.whole({f"turns[{k}]": turn[1]}, f"turns[{k}]")))
        total += out[-1][1]
    if total > MAX_LENGTH:
        raise where.error(f"{total} tokens", "turns", f"at most {MAX_LENGTH} tokens a chat")
    return str(row.get("conv", where.line))[:80], out
