"""The table, what cannot be compared, and the files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simkv.comparison import Comparison, Side, choices, compare, words
from simkv.comparison.export import as_csv, as_mapping, save
from simkv.comparison.metrics import METRICS, Row
from simkv.comparison.report import html_report
from simkv.errors import InputError, SimkvError
from simkv.workload.generators import generate
from tests.comparison.hand import compared, request, shared, traffic

CHAT = generate("multi_turn_chat", requests=40, seed=2, rate=20.0)
METRIC = {m.key: m for m in METRICS}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared(CHAT, "tokens=40000", "tokens=24000", "enable_prefix_caching=false")


def test_the_table_agrees_with_the_runs(comparison: Comparison) -> None:
    rows = {row.metric.key: row for row in comparison.rows}
    for i, side in enumerate(comparison.sides):
        s, r = side.run.summary(), side.run.requests
        assert rows["hit_rate"].values[i] == (s["hit_rate"] or 0.0)  # without a cache nothing is looked up, and nothing cached
        assert rows["preemptions"].values[i] == s["preemptions"]
        assert rows["ttft_p95_s"].values[i] == s["ttft_s"]["p95"]
        assert rows["itl_p99_s"].values[i] == s["itl_s"]["p99"]
        span = float(np.nanmax(r["finish"]) - r["arrive"].min())
        assert rows["output_tokens_per_s"].values[i] == pytest.approx(int(r["generated"].sum()) / span)
        assert rows["requests_per_s"].values[i] == pytest.approx(40 / span)
    usage = rows["usage_peak"].values
    assert all(v is not None and 0 < v <= 1 for v in usage)


def test_change_and_verdict() -> None:
    rate, time, count = (METRIC[k] for k in ("hit_rate", "ttft_p50_s", "preemptions"))
    assert Row(rate, (0.5, 0.6)).change(1) == pytest.approx(0.1)
    assert words.change(Row(rate, (0.5, 0.6)), 1) == "+10.0 points"
    assert Row(rate, (0.5, 0.6)).verdict(1) == "better"
    assert Row(rate, (0.5, 0.5005)).verdict(1) == "same"
    assert words.change(Row(time, (1.0, 0.5)), 1) == "−50 %"
    assert Row(time, (1.0, 0.5)).verdict(1) == "better"
    assert words.change(Row(time, (1.0, 3.4)), 1) == "3.4 ×"
    assert words.change(Row(time, (77.0, 0.33)), 1) == "233 × less"
    assert words.change(Row(count, (0, 3)), 1) == "+3"
    assert Row(count, (0, 3)).change(1) is None
    assert Row(count, (0, 3)).verdict(1) == "worse"
    assert words.change(Row(time, (None, 1.0)), 1) == ""
    assert Row(time, (None, 1.0)).verdict(1) == ""
    assert Row(METRIC["usage_mean"], (0.5, 0.9)).verdict(1) == ""


def test_no_data_is_not_zero() -> None:
    w = traffic([request("a", 20)], time={"mode": "step"})
    keys = {row.metric.key for row in compared(w, "default", "block_size=8").rows}
    assert "hit_rate" in keys
    assert not any(key.endswith("_s") for key in keys)


def test_other_requests_cannot_be_compared(comparison: Comparison) -> None:
    other = generate("multi_turn_chat", requests=40, seed=3, rate=20.0)
    b = compared(other, "tokens=40000").sides[0]
    with pytest.raises(InputError, match="not the same requests"):
        Comparison((comparison.sides[0], replace(b, name="B")))


def test_seconds_and_steps_cannot_be_compared() -> None:
    requests = [request("a", 20)]
    a, b = (compared(traffic(requests, time=t), "default").sides[0] for t in (None, {"mode": "step"}))
    with pytest.raises(InputError, match="one is timed in steps, the other in seconds"):
        Comparison((a, replace(b, name="B")))


def test_equal_requests_read_twice_can(comparison: Comparison) -> None:
    again = generate("multi_turn_chat", requests=40, seed=2, rate=20.0)
    Comparison((comparison.sides[0], replace(compared(again, "tokens=24000").sides[0], name="B")))


def test_closed_loop_arrivals_are_noted() -> None:
    w = traffic([request("a", 20, 4), request("b", [shared(8)], 4, 0.5, after="a")])
    assert any("arrive when that answer is there" in note for note in compared(w, "default", "block_size=8").notes)


def test_what_an_engine_refuses_names_the_side() -> None:
    with pytest.raises(SimkvError, match=r"^B: "):
        compared(CHAT, "tokens=40000", "num_gpu_blocks=2")


def test_cancelling_keeps_what_is_finished() -> None:
    asked = choices(["tokens=40000", "tokens=24000", "tokens=30000"], CHAT)
    found = compare(CHAT, asked, progress=lambda choice, _: choice.name == "A")
    assert [s.name for s in found.sides] == ["A"]


def test_json_and_csv_say_the_same(comparison: Comparison) -> None:
    mapping = json.loads(json.dumps(as_mapping(comparison, "chat", 2), allow_nan=False))
    assert [s["name"] for s in mapping["sides"]] == ["A", "B", "C"]
    rows = {line["metric"]: line for line in csv.DictReader(io.StringIO(as_csv(comparison)))}
    for metric in mapping["metrics"]:
        for name in "ABC":
            cell = rows[metric["key"]][name]
            assert (None if cell == "" else float(cell)) == metric[name]
    assert len(mapping["explanations"]) == 2
    assert mapping["explanations"][0]["sentence"]


def test_the_report_is_self_contained_and_escapes(comparison: Comparison) -> None:
    evil = "<img src=x onerror=alert(1)>"
    sides = tuple(replace(s, label=evil) for s in comparison.sides)
    page = html_report(Comparison(sides), source=evil)
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 4
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert page.count("<polyline") >= 3


def test_a_label_is_no_formula(comparison: Comparison) -> None:
    sides = tuple(replace(s, label="=1+1") for s in comparison.sides)
    assert "\nsettings,,,'=1+1," in as_csv(Comparison(sides))


def test_files(comparison: Comparison, tmp_path: Path) -> None:
    save(comparison, tmp_path / "out", "chat", 2)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["comparison.csv", "comparison.html", "comparison.json"]
    save(comparison, tmp_path / "out", "chat", 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no comparison"):
        save(comparison, tmp_path / "other")


def test_sides_keep_their_order(comparison: Comparison) -> None:
    assert [(s.name, type(s)) for s in comparison.sides] == [("A", Side), ("B", Side), ("C", Side)]
