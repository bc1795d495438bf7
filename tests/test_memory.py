"""What there is in memory, and that nothing bigger is begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simkv import memory
from simkv.errors import SettingsError
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate

REQUESTS = generate("open_ended", requests=20)


def test_a_pool_that_does_not_fit_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simkv.replay.available_bytes", lambda: 8_000_000_000)
    with pytest.raises(SettingsError, match=r"at most 124,\d{3},\d{3} on this machine\. The replay needs 64 bytes a block, 68\.7 GB") as e:
        replay(REQUESTS, EngineSettings(num_gpu_blocks=1 << 30), events=False)
    assert "8.0 GB are available" in str(e.value)
    assert e.value.field == "num_gpu_blocks"


@pytest.mark.parametrize("room", [None, 1_000_000])
def test_a_pool_that_fits_is_replayed(room: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simkv.replay.available_bytes", lambda: room)
    assert replay(REQUESTS, EngineSettings(num_gpu_blocks=2000), events=False).counters["finished"] == 20


def test_the_smallest_of_what_is_known_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.available_bytes()
    assert whole is None or whole > 0
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert memory.available_bytes() == 5_120_000
    for name, text in (("memory.max", "4000000"), ("memory.current", "1000000"), ("memory.stat", "anon 900000\ninactive_file 50000\n")):
        (tmp_path / name).write_text(text + "\n")
    assert memory.available_bytes() == 3_050_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() == 5_120_000


def test_no_word_from_the_system_is_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sysconf", unknown, raising=False)
    assert memory.available_bytes() is None
