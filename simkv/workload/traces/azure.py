"""Azure LLM inference traces (2023 code and conversation, 2024 week): CSV ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Times have seven fractional digits and no zone (2023) or ``+00:00`` (2024). The trace says nothing about content:
every prompt is content of its own and ``Workload.prompts_have_content`` is false, so a hit rate means nothing here.
"""

from __future__ import annotations

import re

import numpy as np

from simkv.workload.assemble import at_least_one, lengths_only
from simkv.workload.csv_rows import read_table
from simkv.workload.rows import Odd, Tally, Where
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import F8, Workload

TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
EXPECTED = "a time like 2023-11-16 18:17:03.9799600"


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    with gc_paused():
        table = read_table(source, tally, ("timestamp", "contexttokens", "generatedtokens"), "TIMESTAMP,ContextTokens,GeneratedTokens")
        arrive = table.column("timestamp", _times, _time)
        num_prompt = table.whole("contexttokens", low=1)
        num_output = table.whole("generatedtokens")
        keep = table.keep(tally)
    num_output = at_least_one(num_output[keep], tally, "GeneratedTokens")
    return lengths_only(source.name, "azure", arrive[keep], num_prompt[keep], num_output, options.limit, tally)


def _times(texts: list[str]) -> F8:
    """Seconds since the first row, all at once. Raises Odd or ValueError for anything unusual."""
    texts = [t.removesuffix("+00:00") for t in texts] if texts[0].endswith("+00:00") else texts
    letters = np.array(texts)
    width = letters.dtype.itemsize // 4
    if not 19 <= width <= 29 or min(map(len, texts)) < 19 or any("\0" in t for t in texts):
        raise Odd
    table = letters.view(np.uint32).reshape(len(texts), width)
    is_digit = (table >= ord("0")) & (table <= ord("9"))
    is_digit[:, 20:] |= table[:, 20:] == 0
    marks = ((4, "-"), (7, "-"), (10, " T"), (13, ":"), (16, ":"), (19, ".\0"))
    for column, allowed in marks[: 6 if width > 19 else 5]:
        is_digit[:, column] = np.isin(table[:, column], list(map(ord, allowed)))
    if not is_digit.all() or min(texts)[:2] < "19" or max(texts)[:2] > "20":
        raise Odd
    times = np.array(texts, "datetime64[ns]")
    if np.isnat(times).any():
        raise Odd
    since: F8 = (times - times.min()).astype(np.int64) / 1e9
    return since


def _time(text: str, title: str, where: Where) -> float:
    """One time as seconds since 1970, in UTC if it has a zone."""
    text = text.strip()
    match = TIME.fullmatch(text)
    if match is None:
        raise where.error(f'the value is "{text[:40]}"', title, EXPECTED)
    day, clock, fraction, zone = match.groups()
    try:
        seconds = np.datetime64(f"{day}T{clock}", "s").astype(np.int64)
    except ValueError:
        raise where.error(f'the value is "{text[:40]}"', title, EXPECTED) from None
    shift = 0
    if zone and zone != "Z":
        shift = (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60) * (-1 if zone[0] == "-" else 1)
    return float(seconds) - shift + float(fraction or 0)
