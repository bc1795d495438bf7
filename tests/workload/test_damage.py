"""Whatever is done to a file, a reader answers with a workload or with one InputError, and every row is accounted for."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import InputError
from simkv.workload.registry import read_bytes
from simkv.workload.workload import Workload
from tests.workload.samples import FILES

WEIRD = [
    None, True, False, 0, -1, 1.5, 3.0, math.nan, math.inf, 1 << 31, 1 << 63, 1 << 64, 10**30, -(10**30), 1e300,
    "", "x", "5", "-1", "nan", "1e999", "\ud800", [], {}, [[]], [None], [True], [1, 2], [-1], ["a"], [1.5], [1 << 63], {"a": [1]}, [{}],
]  # fmt: skip
ROWS_ARE_REQUESTS = set(FILES) - {"sharegpt-lengths"}


def attempt(data: bytes, name: str) -> None:
    """Read as told and as detected, strictly and skipping; check what must hold of a result."""
    for format in (name, None):
        for skip in (False, True):
            try:
                w = read_bytes(data, "file", format=format, skip_bad_rows=skip)
            except InputError:
                continue
            check(w, strict=not skip)


def check(w: Workload, strict: bool) -> None:
    assert len(w) > 0
    assert np.isfinite(w.arrive).all()
    assert min(w.num_prompt.min(), w.num_output.min()) >= 1
    owner = np.repeat(np.arange(len(w)), np.diff(w.first_run))
    assert np.array_equal(np.bincount(owner, w.runs["n"], len(w)), w.num_prompt.astype(np.int64) + w.num_output)
    assert len(w.report.first_dropped) <= 5
    if w.format in ROWS_ARE_REQUESTS:
        assert w.report.rows == len(w) + w.report.dropped
    if strict and w.format != "burstgpt":
        assert w.report.dropped == 0


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, child in inner for p in places(child, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    out = copy.deepcopy(document)
    holder = out
    for key in path[:-1]:
        holder = holder[key]
    if path:
        holder[path[-1]] = value
        return out
    return value


def documents(name: str) -> list[Any]:
    text = FILES[name].decode()
    return [json.loads(text)] if name in ("golden", "live", "claude-code", "sglang") else [json.loads(line) for line in text.splitlines()]


JSON_FORMATS = sorted(set(FILES) - {"azure", "burstgpt"})


@pytest.mark.parametrize("name", JSON_FORMATS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_value_anywhere(name: str, data: st.DataObject) -> None:
    rows = documents(name)
    for _ in range(data.draw(st.integers(1, 2))):
        k = data.draw(st.integers(0, len(rows) - 1))
        path = data.draw(st.sampled_from(places(rows[k])))
        rows[k] = put(rows[k], path, data.draw(st.sampled_from(WEIRD)))
    attempt("\n".join(json.dumps(r) for r in rows).encode(), name)


@pytest.mark.parametrize("name", JSON_FORMATS)
def test_any_field_missing(name: str) -> None:
    rows = documents(name)
    for k, row in enumerate(rows):
        for path in places(row):
            if path and isinstance(path[-1], str):
                changed = copy.deepcopy(rows)
                holder = changed[k]
                for key in path[:-1]:
                    holder = holder[key]
                del holder[path[-1]]
                attempt("\n".join(json.dumps(r) for r in changed).encode(), name)


@pytest.mark.parametrize("name", ["azure", "burstgpt"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_text_in_any_cell(name: str, data: st.DataObject) -> None:
    table = [line.split(",") for line in FILES[name].decode().splitlines()]
    row = data.draw(st.integers(0, len(table) - 1))
    column = data.draw(st.integers(0, len(table[row]) - 1))
    cells = [
        "",
        " ",
        "x",
        "-1",
        "0",
        "1.5",
        "1e5",
        "1e999",
        "nan",
        "inf",
        "99999999999999999999",
        "1_0",
        "٣",
        '"',
        '"a',
        "a\nb",
        ",",
        "\x00",
        "2023",
        "NaT",
    ]
    table[row][column] = data.draw(st.sampled_from(cells) | st.text(max_size=6))
    attempt("\n".join(",".join(cells) for cells in table).encode("utf-8", "surrogatepass"), name)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_bytes_changed(name: str, data: st.DataObject) -> None:
    raw = bytearray(FILES[name])
    at = data.draw(st.integers(0, len(raw) - 1))
    change = data.draw(st.sampled_from(["cut", "drop", "insert", "replace", "double"]))
    if change == "cut":
        del raw[at:]
    elif change == "drop":
        del raw[at : at + data.draw(st.integers(1, 40))]
    elif change == "double":
        raw[at:at] = raw[at : at + data.draw(st.integers(1, 200))]
    else:
        piece = data.draw(
            st.binary(min_size=1, max_size=4) | st.sampled_from([b"\n", b"\r", b"\x00", b'"', b"{", b"]", b",", b"\xff\xfe", b"-", b"e9"])
        )
        raw[at : at + (len(piece) if change == "replace" else 0)] = piece
    attempt(bytes(raw), name)
