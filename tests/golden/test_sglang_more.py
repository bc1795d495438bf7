"""Recordings of our own from SGLang 0.5.23, of settings the first 38 lack (tests/golden/sglang_more/README.md)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simkv.conformance.sglang_log import check_sglang

HERE = Path(__file__).parent / "sglang_more"
INPUTS = sorted(HERE.glob("*.workload.json"))
Record = dict[str, Any]


def name_of(path: Path) -> str:
    return path.name.removesuffix(".workload.json")


def log_of(path: Path) -> Path:
    return HERE / f"{name_of(path)}.python.jsonl.gz"


def records_of(path: Path) -> list[Record]:
    with gzip.open(log_of(path), "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", INPUTS, ids=name_of)
def test_recorded_run_is_exact(path: Path) -> None:
    result = check_sglang(path, log_of(path))
    assert result.first_difference is None, result.first_difference.sentence()
    assert result.exact
    assert result.compared >= 4 * sum(r["ev"] in ("op", "step") for r in records_of(path))


def test_they_hold_what_their_list_says() -> None:
    assert len(INPUTS) == 14
    config = {name_of(p)[:2]: json.loads(p.read_text())["config"] for p in INPUTS}
    steps = {name_of(p)[:2]: [r for r in records_of(p) if r["ev"] == "step"] for p in INPUTS}
    assert {c["page_size"] for c in config.values()} >= {1, 2, 4, 16}
    assert {c["eviction_policy"] for c in config.values()} >= {"lru", "slru", "tlru", "fifo", "filo", "mru"}
    assert config["01"]["eviction_policy_config"] == {"protected_threshold": 3}
    for name in ("02", "11", "12"):
        assert config[name]["enable_mixed_chunk"]
        assert any(len(s["admitted"]) > 1 and s["admitted"][-1]["extend"] == 1 for s in steps[name] if s["kind"] == "prefill")
    for name, least in (("06", 3), ("07", 2)):
        assert sum(len(s.get("retracted", [])) for s in steps[name]) >= least
        assert config[name]["page_size"] == 16
    assert config["07"]["chunked_prefill_size"] % 16
    for name in ("13", "14"):
        assert max(len(s.get("queue_order", [])) for s in steps[name]) > 128
