"""Formats are recognised by content; what is wrong with any file is said in one sentence."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import FILES as BUNDLED
from simkv.workload.bundled import NAMES_OF, bundled
from simkv.workload.registry import Format, formats, read_bytes, read_workload
from simkv.workload.workload import OUTPUT_SEED, Workload
from tests.workload.samples import AZURE, FILES, GOLDEN, MOONCAKE, lines

EXPECTED = {
    "mooncake_conversation": ("mooncake", 12_031),
    "mooncake_synthetic": ("mooncake", 3_993),
    "azure_code_2023": ("azure", 8_819),
    "azure_conv_2023": ("azure", 19_366),
    "ragpulse": ("ragpulse", 7_106),
    "claude_code": ("claude-code", 661),
    "lmcache_miniswe": ("lmcache", 402),
    "lmcache_taubench": ("lmcache", 471),
    "sharegpt_lengths": ("sharegpt-lengths", 6_771),
}


@pytest.fixture(scope="module")
def traces() -> dict[str, Workload]:
    return {name: read_workload(path) for name, path in bundled().items()}


def test_every_bundled_trace_is_there_and_recognised(traces: dict[str, Workload]) -> None:
    assert set(bundled()) == set(BUNDLED) == set(EXPECTED)
    assert {name: (w.format, len(w)) for name, w in traces.items()} == EXPECTED
    assert {f.example for f in formats() if f.example} <= set(bundled())


@pytest.mark.parametrize("name", EXPECTED)
def test_what_every_workload_promises(traces: dict[str, Workload], name: str) -> None:
    w = traces[name]
    owner = np.repeat(np.arange(len(w)), np.diff(w.first_run))
    assert np.array_equal(np.bincount(owner, w.runs["n"], len(w)), w.num_prompt + w.num_output)
    assert w.runs["n"].min() > 0
    assert w.runs["start"].min() >= 0
    assert min(w.num_prompt.min(), w.num_output.min()) >= 1
    assert w.arrive.min() >= 0
    assert np.isfinite(w.arrive).all()
    if w.after is None:
        assert w.arrive[0] == 0
        assert (np.diff(w.arrive) >= 0).all()
    else:
        assert (w.after < np.arange(len(w))).all()
    if len(w.tokens):
        assert (w.runs["seed"] < 0).all()
    else:
        last = w.runs[w.first_run[1:] - 1]
        assert (last["seed"] < 1 << 32).all()
        assert (w.runs["seed"] >= 0).all()
    if w.session is not None:
        assert w.session.min() >= 0
        assert w.session.max() < len(w.sessions)
    for column in (w.arrive, w.num_prompt, w.runs, w.first_run):
        assert not column.flags.writeable


def test_who_names_tenants_and_sessions(traces: dict[str, Workload]) -> None:
    assert tuple(name for name, w in traces.items() if w.tenant is not None) == NAMES_OF["tenant"]
    assert tuple(name for name, w in traces.items() if w.session is not None) == NAMES_OF["session"]


def test_no_trace_content_reaches_the_outputs(traces: dict[str, Workload]) -> None:
    for name, w in traces.items():
        if name == "sharegpt_lengths" or len(w.tokens):
            continue
        is_last = np.zeros(len(w.runs), bool)
        is_last[w.first_run[1:] - 1] = True
        assert np.array_equal(w.runs["seed"][is_last], OUTPUT_SEED + np.arange(len(w)))
        assert w.runs["seed"][~is_last].max() < OUTPUT_SEED


@pytest.mark.parametrize("name", FILES)
def test_formats_are_recognised_by_content(name: str, tmp_path: Path) -> None:
    assert read_bytes(FILES[name], "unhelpful.name").format == name
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.compress(FILES[name]))
    assert read_workload(path).format == name


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
        lambda b: b.rstrip(),
        lambda b: b + b"\n\n \n",
        lambda b: b"\n\n" + b,
        lambda b: b"\xef\xbb\xbf" + b,
        lambda b: gzip.compress(b[: len(b) // 2]) + gzip.compress(b[len(b) // 2 :]),
    ],
    ids=["CRLF", "no final newline", "blank lines at the end", "blank lines first", "byte order mark", "two gzip members"],
)
def test_line_ends_blank_lines_and_marks_do_not_matter(name: str, change: object) -> None:
    plain, other = read_bytes(FILES[name], "a"), read_bytes(change(FILES[name]), "a")  # type: ignore[operator]
    assert np.array_equal(plain.arrive, other.arrive)
    assert np.array_equal(plain.runs, other.runs)
    assert np.array_equal(plain.tokens, other.tokens)
    assert plain.report.rows == other.report.rows
    assert plain.report.dropped == other.report.dropped


def test_blank_lines_between_rows() -> None:
    spaced = read_bytes(FILES["mooncake"].replace(b"\n", b"\n\n  \n"), "a")
    assert np.array_equal(spaced.runs, read_bytes(FILES["mooncake"], "a").runs)
    assert spaced.report.rows == len(MOONCAKE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (gzip.compress(b""), "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132054902\n", "Git LFS pointer"),
        (gzip.compress(FILES["mooncake"])[:-20], "ends early"),
        (gzip.compress(FILES["mooncake"])[:12], "ends early"),
        (b"\x1f\x8b" + b"x" * 40, "gzip data is damaged"),
        ("timestamp,ä".encode("latin-1") + AZURE, "not UTF-8"),
        (AZURE.decode().encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04 zip", "archive or a binary file"),
        (b"hello\nworld\n", 'begins with "hello"'),
        (b"[1, 2, 3]", "JSON list"),
        (b'{"a": 1, "b": 2}', "fields a, b"),
        (b'{"timestamp": 1, "b": 2}', "one of golden, live, mooncake"),
        (b"a,b\n1,2\n", 'begins with "a,b"'),
    ],
)
def test_files_that_are_no_trace(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as e:
        read_bytes(data, "trace.jsonl")
    assert e.value.file == "trace.jsonl"
    assert "trace.jsonl" in str(e.value)


@pytest.mark.parametrize("format", formats(), ids=lambda f: f.name)
def test_the_example_of_every_format_is_one(format: Format) -> None:
    w = read_bytes(format.lines.encode(), "example")
    assert (w.format, w.report.dropped) == (format.name, 0)
    assert len(format.lines.splitlines()) <= 2
    assert all(f'"{field}"' in format.lines or field in format.lines.splitlines()[0].split(",") for field in format.fields)


@pytest.mark.parametrize(
    ("data", "name", "missing"),
    [
        (b'{"id": "a", "arrival": 0, "prompt": [{"seed": 1, "n": 4}], "max_tokens": 3}', "golden", "arrive (here arrival?) and output_len"),
        (b'{"requests": [{"id": "a", "arrive": 0, "prompts": []}]}', "golden", "prompt (here prompts?) and output_len"),
        (b'{"ts": 0, "input_length": 9, "output_length": 3, "hashids": [1]}', "mooncake", "timestamp and hash_ids (here hashids?)"),
        (b"timestamp,context_tokens,generated_tokens\n1,2,3\n", "azure", "ContextTokens (here context_tokens?)"),
        (b'{"conv": 0, "turn": []}', "sharegpt-lengths", "turns (here turn?)"),
        (b'{"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": "1"}', "mooncake", None),
    ],
)
def test_a_near_miss_hears_what_is_missing(data: bytes, name: str, missing: str | None) -> None:
    with pytest.raises(InputError, match=f"for the nearest format, {name}, the fields") as e:
        read_bytes(data, "trace.jsonl")
    assert (f"Missing: {missing}" if missing else f"All are there, but not as in {name}") in str(e.value)
    assert "`simkv formats`" in str(e.value)


def test_uploads_are_bounded_even_if_they_unpack_to_more() -> None:
    bomb = gzip.compress(b" " * (3 << 20))
    with pytest.raises(InputError, match="larger than 1 MiB once unpacked"):
        read_bytes(bomb, "bomb.gz", max_bytes=1 << 20)
    with pytest.raises(InputError, match="at most 1,000 bytes"):
        read_bytes(b" " * 2000, "big", max_bytes=1000)


def test_names_of_uploads_are_labels_only() -> None:
    with pytest.raises(InputError) as e:
        read_bytes(b"", "../../etc/<script>passwd")
    assert "<" not in str(e.value)
    assert "/" not in str(e.value)


def test_missing_file_folder_without_traces_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_workload(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="folder without trace files"):
        read_workload(tmp_path)
    with pytest.raises(InputError, match="unknown format csvish"):
        read_bytes(AZURE, "a", format="csvish")
    with pytest.raises(InputError, match="limit is 0"):
        read_bytes(AZURE, "a", limit=0)


@pytest.mark.parametrize("name", FILES)
def test_limit_keeps_the_first_by_arrival(name: str) -> None:
    full, one = read_bytes(FILES[name], "a"), read_bytes(FILES[name], "a", limit=1)
    assert len(one) == 1
    assert one.num_prompt[0] == full.num_prompt[0]
    assert np.array_equal(one.runs, full.runs[: full.first_run[1]])
    if len(full) > 1:
        assert any("Limited to the first 1 of" in note for note in one.report.notes)


def test_unsorted_rows_are_sorted_and_noted() -> None:
    w = read_bytes(lines([MOONCAKE[3], *MOONCAKE[:3]]), "a")
    assert w.arrive.tolist() == [0.0, 0.0, 2.5, 3.0]
    assert w.num_prompt.tolist() == [1300, 1024, 1, 1400]
    assert "1 row stood before an earlier arrival" in w.report.notes[0]


def test_the_name_of_a_format_may_be_given() -> None:
    assert read_bytes(FILES["claude-code"], "a", format="claude_code").format == "claude-code"
    with pytest.raises(InputError):
        read_bytes(FILES["azure"], "a", format="mooncake")


def test_pretty_printed_json_is_recognised() -> None:
    assert len(read_bytes(json.dumps(GOLDEN, indent=2).encode(), "a")) == 3


def test_importing_the_registry_is_light() -> None:
    code = (
        "import sys, simkv.workload.registry\n"
        "heavy = ('numba', 'simpy', 'pyarrow', 'tokenizers', 'simkv.workload.traces.')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "[]"
