"""Without a browser: skipped on a person's machine, a failure where the whole check runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.conftest import go_without

ROOT = Path(__file__).resolve().parents[2]


def test_skipped_or_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("SIMKV_REQUIRE_BROWSER", value)
        with pytest.raises(pytest.skip.Exception, match="no browser"):
            go_without("no browser")
    monkeypatch.setenv("SIMKV_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="SIMKV_REQUIRE_BROWSER is set: no browser"):
        go_without("no browser")


def test_a_missing_chromium_ends_a_required_run(tmp_path: Path) -> None:
    """The whole way, from an empty PATH to pytest's exit code."""
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "browser", "-x", "tests/browser"]
    for required, code in (("1", 1), ("0", 0)):
        environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SIMKV_REQUIRE_BROWSER": required}
        done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout
        assert "hromium" in done.stdout


def test_the_whole_check_requires_it() -> None:
    script = ROOT / ".ci" / "run"
    if script.exists():
        assert "export SIMKV_REQUIRE_BROWSER=1" in script.read_text(encoding="utf-8")
