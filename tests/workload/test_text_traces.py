"""Prompt text becomes tokens: agent logs, request logs, chat template, tokenizer or bytes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from simkv.workload.workload import tokens_of
from tests.workload.reference import infinite
from tests.workload.samples import LMCACHE, OPENAI, lines


def text(w: Any, i: int) -> tuple[bytes, bytes]:
    tokens = tokens_of(w, i)
    assert tokens.max() < 32_000
    return bytes(tokens[: w.num_prompt[i]].astype(np.uint8)), bytes((tokens[w.num_prompt[i] :] & 0xFF).astype(np.uint8))


@pytest.mark.parametrize(("name", "rows", "sessions", "rate"), [("lmcache_miniswe", 402, 20, 0.937), ("lmcache_taubench", 471, 24, 0.866)])
def test_agent_logs_byte_for_byte(name: str, rows: int, sessions: int, rate: float) -> None:
    w = read_workload(bundled()[name])
    raw = [json.loads(line) for line in gzip.decompress(bundled()[name].read_bytes()).splitlines() if line.strip()]
    raw.sort(key=lambda r: r["timestamp"])
    assert (len(w), len(w.sessions)) == (rows, sessions)
    for i in range(0, rows, 7):
        prompt, answer = text(w, i)
        assert prompt == raw[i]["input"].encode()
        assert answer == raw[i]["output"].encode() or not raw[i]["output"]
        assert w.sessions[np.asarray(w.session)[i]] == raw[i]["session_id"]
    blocks = [[bytes(p[k : k + 64]) for k in range(0, len(p) - 63, 64)] for p in (text(w, i)[0] for i in range(rows))]
    hits, total = infinite(blocks, chained=False)
    assert hits / total == pytest.approx(rate, abs=0.003)
    assert "one token a byte" in " ".join(w.report.notes)


def test_rows_are_sorted_and_answers_known() -> None:
    w = read_bytes(lines([LMCACHE[2], *LMCACHE[:2]]), "l")
    assert w.arrive.tolist() == [0, 0.5, 1.0]
    assert text(w, 0) == (b"You are an agent.", b"Fine.")
    assert text(w, 1)[0] == "Grüße".encode()
    assert w.num_output.tolist() == [5, 1, 5]
    assert text(w, 2)[0].startswith(b"".join(text(w, 0)))
    assert any("1 request with output length 0" in note for note in w.report.notes)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input": ""}, "input"),
        ({"input": 3}, "input"),
        ({"output": None}, "output"),
        ({"timestamp": -1}, "timestamp"),
        ({"session_id": []}, "session_id"),
    ],
)
def test_wrong_fields_of_agent_logs(change: dict[str, Any], field: str) -> None:
    rows = [LMCACHE[0], {**LMCACHE[1], **change}, LMCACHE[2]]
    with pytest.raises(InputError) as e:
        read_bytes(lines(rows), "l")
    assert (e.value.line, e.value.field) == (2, field)
    assert read_bytes(lines(rows), "l", skip_bad_rows=True).report.dropped == 1


def test_text_that_is_no_valid_unicode_is_read() -> None:
    row = {**LMCACHE[0], "input": "a\ud800b"}
    assert text(read_bytes(lines([row]), "l"), 0)[0] == b"a?b"


def test_chat_becomes_chatml_and_the_next_turn_begins_with_this_one() -> None:
    first = OPENAI[0]
    messages = [
        *first["body"]["messages"],  # type: ignore[index]
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
    ]
    w = read_bytes(lines([first, {"timestamp": "2026-05-01T10:00:05Z", "messages": messages, "usage": {"completion_tokens": 7}}]), "o")
    prompt, answer = text(w, 0)
    assert prompt == b"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert answer == b"Hello!<|im_end|>"
    assert text(w, 1)[0].startswith(prompt + answer)
    assert w.num_output.tolist() == [16, 7]
    assert any("1 images stand as a short text" in note for note in w.report.notes)


def test_times_in_every_unit_and_form() -> None:
    w = read_bytes(lines(OPENAI), "o")
    assert w.arrive.tolist() == [0, 1.5, 2.0]
    times = [
        1777629600,
        "1777629601",
        1777629602000,
        1777629603000000,
        1777629604000000000,
        "2026-05-01T12:00:05+02:00",
        "2026-05-01 10:00:06",
    ]
    w = read_bytes(lines([{**OPENAI[1], "timestamp": t} for t in times]), "o")
    assert w.arrive.tolist() == pytest.approx([0, 1, 2, 3, 4, 5, 6])


def test_who_asked_and_which_salt() -> None:
    w = read_bytes(lines(OPENAI), "o")
    assert (w.tenants[np.asarray(w.tenant)[0]], w.sessions[np.asarray(w.session)[0]]) == ("ann", "s1")
    assert [w.salts[k] for k in np.asarray(w.salt)] == ["x", "", ""]


def test_token_ids_as_prompt() -> None:
    w = read_bytes(lines(OPENAI), "o")
    assert tokens_of(w, 2).tolist() == [1, 2, 3, *b"abc"]


def test_bodies_and_answers_as_json_text() -> None:
    row = {
        "time": 5,
        "request_body": json.dumps({"messages": [{"role": "user", "content": "x"}]}),
        "response_body": json.dumps({"choices": [{"message": {"content": "yes"}}]}),
    }
    assert text(read_bytes(lines([row]), "o", format="openai-log"), 0)[1] == b"yes<|im_end|>"


def test_tools_calls_and_reasoning_are_part_of_the_text() -> None:
    call = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    row = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response": {"choices": [{"message": {"content": None, "tool_calls": call, "reasoning_content": "hm"}}]},
    }
    w = read_bytes(lines([row]), "o")
    prompt, answer = text(w, 0)
    assert prompt.startswith(b'<|im_start|>system\n[{"function":{"name":"f"}')
    assert answer.startswith(b"hm\n[{")
    assert "No times in the log: all requests arrive at once." in w.report.notes


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"timestamp": 1, "messages": []}, "messages"),
        ({"timestamp": 1, "messages": ["x"], "max_tokens": 3}, "messages[0]"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": 5}], "max_tokens": 3}, "messages[0].content"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": "x"}]}, "response"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "max_tokens"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "cache_salt": 4}, "cache_salt"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": "x"}], "usage": {"completion_tokens": True}}, "completion_tokens"),
        ({"timestamp": 1, "messages": [{"role": "user", "content": "x"}], "usage": 5}, "usage"),
        ({"timestamp": "noon", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}, "timestamp"),
        ({"timestamp": 1, "prompt": [1, -2], "max_tokens": 3}, "prompt"),
        ({"timestamp": 1, "prompt": "", "max_tokens": 3}, "prompt"),
        ({"timestamp": 1, "model": "x"}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}, "timestamp"),
    ],
)
def test_wrong_calls(row: dict[str, Any], field: str) -> None:
    data = lines([OPENAI[1], row])
    with pytest.raises(InputError) as e:
        read_bytes(data, "o")
    assert (e.value.line, e.value.field) == (2, field)
    w = read_bytes(data, "o", skip_bad_rows=True)
    assert (w.report.rows, w.report.dropped, len(w)) == (2, 1, 1)


def test_a_real_tokenizer(tmp_path: Path) -> None:
    import tokenizers

    words = {"[UNK]": 0, "You": 1, "are": 2, "an": 3, "agent.Fine.Go": 4, "on.": 5, "agent.": 6, "Fine.": 7, "Done.": 8}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    for given in (path, tmp_path):
        w = read_bytes(lines(LMCACHE), "l", tokenizer=str(given))
        assert tokens_of(w, 0).tolist() == [1, 2, 3, 6, 7]
        assert w.num_prompt.tolist() == [4, 1, 5]
    path.write_text("{}")
    with pytest.raises(InputError, match="not a tokenizer file"):
        read_bytes(lines(LMCACHE), "l", tokenizer=str(path))


def test_a_tokenizer_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such tokenizer file"):
        read_bytes(lines(LMCACHE), "l", tokenizer="nowhere/tokenizer.json")
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="the package tokenizers is not installed"):
        read_bytes(lines(LMCACHE), "l", tokenizer=str(path))
