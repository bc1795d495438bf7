"""Mooncake (FAST'25) traces: JSON lines ``{timestamp ms, input_length, output_length, hash_ids}``.

A hash id names a 512-token block *and everything before it* (chained), so equal ids mean equal prefixes and an id can
stand as the content of its block. The last block is shorter; whether two prompts with equal ids shared tokens beyond
the shorter one's end is unknown, the trace says they shared the block. Traces of other block sizes (16, 64, …), as
several generators write them, are recognised by their lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.workload.assemble import at_least_one, block_runs, dense, order_of_arrival, take, take_lists
from simkv.workload.rows import (
    Odd,
    Row,
    Tally,
    Where,
    has_words,
    id_lists,
    number_column,
    read_columns,
    sample_rows,
    whole_column,
)
from simkv.workload.source import Options, Source
from simkv.workload.workload import Workload

BLOCK = 512
OTHER_BLOCKS = (16, 32, 64, 128, 256, 1024, 2048, 8)


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    words = has_words(source)
    block = 0

    def check(row: Row, line: int) -> None:
        nonlocal block
        block = block or _likely_block(sample_rows(source))
        _check(row, Where(source.name, line), block)

    def columns(rows: list[Row]) -> dict[str, Any]:
        ids, counts = id_lists([r["hash_ids"] for r in rows], words and block == 0)
        return {
            "timestamp": number_column([r["timestamp"] for r in rows], high=1e15),
            "input_length": whole_column([r["input_length"] for r in rows], low=1),
            "output_length": whole_column([r["output_length"] for r in rows]),
            "ids": ids,
            "counts": counts,
        }

    c = read_columns(source, tally, columns, _block_of, check, _plain)
    block = _block_of(c)
    if block != BLOCK:
        tally.notes.append(f"The lengths say blocks of {block} tokens.")
    num_output = at_least_one(c["output_length"], tally, "output_length")
    order = order_of_arrival(c["timestamp"], options.limit, tally)
    ids, counts = take_lists(order, dense(c["ids"]), c["counts"])
    arrive, num_prompt, num_output = take(order, c["timestamp"], c["input_length"], num_output)
    runs, first = block_runs(ids, counts, num_prompt, num_output, block)
    return Workload(
        source.name,
        "mooncake",
        (arrive - arrive[0]) / 1e3,
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        report=tally.report(),
    )


def _block_of(c: dict[str, Any]) -> int:
    """Tokens per block with which all lengths agree. Raises Odd if there is none."""
    for size in (BLOCK, *OTHER_BLOCKS):
        if np.array_equal(c["counts"], -(-c["input_length"] // size)):
            return size
    raise Odd


def _plain(row: Row) -> Row:
    """Whole numbers written as 3.0 become 3."""
    return {**row, "input_length": int(row["input_length"]), "output_length": int(row["output_length"])}


def _likely_block(rows: list[Row]) -> int:
    """The block size most rows agree with, 512 if in doubt."""
    best, most = BLOCK, 0
    for size in (BLOCK, *OTHER_BLOCKS):
        fit = 0
        for r in rows:
            length, ids = r.get("input_length"), r.get("hash_ids")
            fit += isinstance(length, int) and isinstance(ids, list) and len(ids) == -(-length // size)
        if fit > most:
            best, most = size, fit
    return best


def _check(row: Row, where: Where, block: int) -> None:
    where.number(row, "timestamp", high=1e15)
    length = where.whole(row, "input_length", low=1)
    where.whole(row, "output_length")
    ids = where.ids(row, "hash_ids")
    need = -(-length // block)
    if len(ids) != need:
        expected = f"{need} ids, one for each {block} tokens of input_length"
        raise where.error(f"{len(ids)} ids for {length} tokens", "hash_ids", expected, "One of both is wrong")
