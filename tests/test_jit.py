"""The folder of compiled code looks after itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from simkv import jit


def test_only_old_compiled_code_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMKV_CACHE", str(tmp_path / "cache"))
    assert jit.prune_stale() == 0
    for name, age in (("engine-new", 0.0), ("engine-old", jit.STALE_AFTER_S + 60)):
        folder = tmp_path / "cache" / name
        folder.mkdir(parents=True)
        (folder / "code.nbc").touch()
        os.utime(folder, (time.time() - age,) * 2)
    assert jit.prune_stale() == 1
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["engine-new"]
