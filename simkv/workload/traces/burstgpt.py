"""BurstGPT: CSV ``Timestamp, [Session ID, Elapsed time,] Model, Request tokens, Response tokens, Total tokens, Log Type``.

Times are seconds. ``Response tokens`` 0 marks a call that failed: an engine never ran it, so it is left out, counted in
the report as dropped and noted, whether or not bad rows are skipped (``BurstGPT_without_fails_*.csv`` are the same
traces without these rows). No content is known: every prompt is content of its own. A session id, where there is
one, becomes ``Workload.session``.
"""

from __future__ import annotations

import numpy as np

from simkv.workload.assemble import lengths_only
from simkv.workload.csv_rows import read_table
from simkv.workload.rows import Tally
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import Workload


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    with gc_paused():
        table = read_table(
            source, tally, ("timestamp", "request tokens", "response tokens"), "Timestamp,Model,Request tokens,Response tokens,…"
        )
        arrive = table.number("timestamp")
        num_prompt = table.whole("request tokens")
        num_output = table.whole("response tokens")
        failed = num_output == 0
        for row in np.flatnonzero((num_prompt == 0) & ~failed).tolist():
            error = f"an answer of {num_output[row]} tokens to a request of 0"
            table.errors.append((row, table.where(row).error(error, "Request tokens", "at least 1")))
        keep = table.keep(tally)
        lost = keep[failed[keep]]
        keep = keep[~failed[keep]]
        _report_failed(tally, [table.lines[i] for i in lost.tolist()])
        tally.needs_rows(len(keep))
        sessions = table.columns.get("session id")
    picked = None if sessions is None else [sessions[i] for i in keep.tolist()]
    return lengths_only(source.name, "burstgpt", arrive[keep], num_prompt[keep], num_output[keep], options.limit, tally, picked)


def _report_failed(tally: Tally, lines: list[int]) -> None:
    for line in lines[:5]:
        tally.drop(f"{tally.name}, line {line}: Response tokens is 0, the call had failed.")
    if len(lines) > 5:
        tally.drop("", len(lines) - 5)
    if lines:
        tally.notes.append(f"{len(lines)} failed call{'s' * (len(lines) > 1)} (Response tokens 0) left out: the engine never ran them.")
