"""Mooncake (FAST'25) traces: JSON lines ``{timestamp ms, input_length, output_length, hash_ids}``.

A hash id names a 512-token block *and everything before it* (chained), so equal ids mean equal prefixes and an id can
stand as the content of its block. The last block is shorter; whether two prompts with equal ids shared tokens beyond
the shorter one's end is unknown, the trace says they shared the block. Traces of other block sizes (16, 64, …), as
several generators write them, are recognised by their lengths.
"""

from __future__ import annotations

import numpy as np

from simkv.workload.assemble import at_least_one, block_runs, dense, order_of_arrival, take, take_lists
from simkv.workload.rows import (
    Odd,
    Row,
    Tally,
    Where,
    checked_rows,
    has_words,
    id_lists,
    json_rows,
    number_column,
    sample_rows,
    whole_column,
)
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import F8, I8, Workload

BLOCK = 512
OTHER_BLOCKS = (16, 32, 64, 128, 256, 1024, 2048, 8)


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    with gc_paused():
        rows = json_rows(source)
        try:
            if rows is None:
                raise Odd
            tally.rows = len(rows)
            columns = _columns(rows, has_words(source))
        except (Odd, KeyError):
            block = _likely_block(rows or sample_rows(source))
            rows, _ = checked_rows(source, tally, lambda row, line: _check(row, Where(source.name, line), block))
            columns = _columns(_plain(rows), False, block)
        del rows
    arrive, num_prompt, num_output, ids, counts, block = columns
    if block != BLOCK:
        tally.notes.append(f"The lengths say blocks of {block} tokens.")
    num_output = at_least_one(num_output, tally, "output_length")
    order = order_of_arrival(arrive, options.limit, tally)
    ids, counts = take_lists(order, dense(ids), counts)
    arrive, num_prompt, num_output = take(order, arrive, num_prompt, num_output)
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


def _columns(rows: list[Row], words: bool, block: int | None = None) -> tuple[F8, I8, I8, I8, I8, int]:
    arrive = number_column([r["timestamp"] for r in rows], high=1e15)
    num_prompt = whole_column([r["input_length"] for r in rows], low=1)
    num_output = whole_column([r["output_length"] for r in rows])
    ids, counts = id_lists([r["hash_ids"] for r in rows], words)
    for size in (block,) if block else (BLOCK, *OTHER_BLOCKS):
        if np.array_equal(counts, -(-num_prompt // size)):
            return arrive, num_prompt, num_output, ids, counts, size
    raise Odd


def _plain(rows: list[Row]) -> list[Row]:
    """Whole numbers written as 3.0 become 3."""
    return [{**r, "input_length": int(r["input_length"]), "output_length": int(r["output_length"])} for r in rows]


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
