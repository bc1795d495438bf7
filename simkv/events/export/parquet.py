"""Parquet: the log's rows as flat columns, written in row groups and never as Python objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from simkv.events.export.columns import ARG_NAMES, BLOCK_KINDS, GROUP_KINDS, KEY_KINDS
from simkv.events.export.output import partial
from simkv.events.layout import KIND_BITS, KIND_MASK, KIND_NAMES
from simkv.events.log import EventLog
from simkv.workload.workload import Workload

ROW_GROUP = 1 << 20
"""Rows held in memory at a time."""
_KINDS = np.arange(1 << KIND_BITS)


def write_parquet(log: EventLog, workload: Workload, target: Path, *, info: dict[str, Any] | None = None) -> int:
    """Write the log's rows to one Parquet file and return how many.

    Columns: ``time`` (seconds, or the step index of a run in steps), ``replica``, ``step``, ``kind`` (dictionary),
    ``group``, ``request`` (the source's id, dictionary), ``request_index``, ``block`` (null where the row is not about
    a block), ``arg`` (what the kind says: tokens, hit tokens, full blocks; else null), ``key`` (64-bit chain key of
    rows ``stored``, ``stored_extra`` and ``host_stored``, else null). The header of the log and ``info`` are in the schema's metadata
    under ``simkv``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    dictionary = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            ("time", pa.float64()),
            ("replica", pa.int16()),
            ("step", pa.int32()),
            ("kind", dictionary),
            ("group", pa.int8()),
            ("request", dictionary),
            ("request_index", pa.int32()),
            ("block", pa.int32()),
            ("arg", pa.int32()),
            ("key", pa.uint64()),
        ],
        metadata={"simkv": json.dumps({**log.header, **(info or {})})},
    )
    kinds, ids = pa.array(KIND_NAMES), pa.array([workload.id(i) for i in range(len(workload))], pa.string())
    is_block, has_group = np.isin(_KINDS, BLOCK_KINDS), np.isin(_KINDS, GROUP_KINDS)
    plain = np.isin(_KINDS, [k for k, name in ARG_NAMES.items() if name != "block"])
    is_key = np.isin(_KINDS, KEY_KINDS)
    used = 0
    with partial(target) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for at in range(0, len(log.events), ROW_GROUP):
            rows = log.events[at : at + ROW_GROUP]
            step = np.searchsorted(log.steps["first_event"], np.arange(at, at + len(rows)), side="right") - 1
            what, req = rows["kind"] & KIND_MASK, rows["req"]
            block, stored = is_block[what], is_key[what]
            keys = np.zeros(len(rows), np.uint64)
            count = int(stored.sum())
            keys[stored] = log.keys[used : used + count]
            used += count
            columns = [
                pa.array(log.steps["time"][step]),
                pa.array(np.zeros(len(rows), np.int16)),
                pa.array(step.astype(np.int32)),
                pa.DictionaryArray.from_arrays(pa.array(what.astype(np.int32)), kinds),
                pa.array((rows["kind"] >> KIND_BITS).astype(np.int8), mask=~has_group[what]),
                pa.DictionaryArray.from_arrays(pa.array(req.astype(np.int32), mask=req < 0), ids),
                pa.array(req.astype(np.int32), mask=req < 0),
                pa.array(rows["arg"].astype(np.int32), mask=~block),
                pa.array(rows["arg"].astype(np.int32), mask=~plain[what]),
                pa.array(keys, mask=~stored),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema), row_group_size=ROW_GROUP)
    return len(log.events)
