"""What README.md and CONTRIBUTING.md say is so: every command line of the one runs, every part stands in the other."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from simkv.cli import main
from tests.workload.samples import FILES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECORDED = {
    "vllm": "01_shared_system_prompt.*",
    "vllm_live": "*",
    "vllm_offload": "n01_*",
    "sglang": "01_*",
    "sglang_more": "01_*",
    "routers/sglang_router": "rr*",
}
MOST = "60"


def command_lines() -> list[list[str]]:
    """Every ``simkv …`` of the README's shell blocks in order, then those in its sentences and tables; without ``simkv app``."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(simkv [^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.M | re.S))
    split = [shlex.split(line, comments=True) for line in lines if line.startswith("simkv ")]
    return [words[1:] for words in split if words[1] != "app"]


def test_every_command_line_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In order and in one folder, as a reader would; on the first requests, few repeats and few recordings."""
    (tmp_path / "trace.jsonl").write_bytes(FILES["mooncake"])
    for name, some in RECORDED.items():
        (tmp_path / "tests" / "golden" / name).mkdir(parents=True)
        for file in sorted((ROOT / "tests" / "golden" / name).glob(some))[:2]:
            shutil.copy(file, tmp_path / "tests" / "golden" / name)
    monkeypatch.chdir(tmp_path)
    lines = command_lines()
    assert {words[0] for words in lines} >= {"replay", "export", "conformance", "bench", "settings", "traces", "generators", "formats"}
    for words in lines:
        few = ["--limit", MOST] if words[0] in ("replay", "compare", "bench", "sharing", "waste") else []
        few += ["--repeat", "1"] if words[0] == "bench" else []
        code = main([*words, *few])
        out, err = capsys.readouterr()
        assert code == 0, f"simkv {shlex.join(words)}\n{err}"
        assert out


def test_every_part_stands_in_contributing() -> None:
    parts = {p.name for p in (ROOT / "simkv").iterdir() if p.is_dir() or p.suffix == ".py"}
    parts = {name for name in parts if not name.startswith(("_", "."))}
    assert {name for name in parts if f"`simkv/{name}`" not in CONTRIBUTING} == set()
    named = set(re.findall(r"`((?:simkv|tests|scenarios)(?:/[\w./]+)?)`", CONTRIBUTING))
    assert {name for name in named if not (ROOT / name).exists() and "NAME" not in name} == set()


def test_files_are_as_short_as_contributing_says() -> None:
    said = re.search(r"never more than (\d+) lines", CONTRIBUTING)
    assert said is not None
    lengths = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / "simkv").rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > int(said[1])} == {}
