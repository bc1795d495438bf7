"""Bailian and RAGPulse: ids that name content, sessions, chunks of their own lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from simkv.workload.workload import OUTPUT_SEED
from tests.workload.reference import addresses, infinite, leading, prefixes
from tests.workload.samples import BAILIAN, RAGPULSE, lines


def test_bailian_rows_become_runs_of_16_tokens() -> None:
    w = read_bytes(lines(BAILIAN), "q")
    assert w.arrive.tolist() == [0, 0.75, 1.5, 2.5]
    assert w.num_prompt.tolist() == [40, 32, 70, 16]
    a, b, c, d = (addresses(w, i, 16) for i in range(4))
    assert a[:2] == c[:2]
    assert a[0] == b[0] == d[0]
    assert len({*a, *b, *c, *d}) == 7  # ids 1, 2, 3, 8, 4, 5 and the tail of the third prompt, which has no id
    assert len(c) == 5
    assert w.ids == ["7", "9", "8", "12"]


def test_bailian_chats_are_followed_to_their_first_turn() -> None:
    w = read_bytes(lines(BAILIAN), "q")
    assert w.session is not None
    assert [w.sessions[k] for k in w.session] == ["7", "9", "7", "7"]


def test_bailian_parent_that_is_not_there_begins_a_session() -> None:
    w = read_bytes(lines(BAILIAN[1:]), "q")
    assert w.session is not None
    assert [w.sessions[k] for k in w.session] == ["9", "8", "8"]
    assert "1 request whose parent_chat_id is not in the file" in w.report.notes[0]


def test_bailian_circle_of_parents_ends() -> None:
    rows = [{**BAILIAN[0], "parent_chat_id": 8}, *BAILIAN[1:]]
    assert len(read_bytes(lines(rows), "q")) == 4


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"chat_id": 7}, "chat_id", "7 stands in an earlier row"),
        ({"chat_id": -5}, "chat_id", "-5"),
        ({"hash_ids": [1, 2, 4]}, "hash_ids", "3 ids for 70 tokens; expected 4 or 5 ids"),
        ({"parent_chat_id": "7"}, "parent_chat_id", 'the text "7"'),
        ({"timestamp": "1.5"}, "timestamp", "the text"),
    ],
)
def test_bailian_wrong_fields(change: dict[str, Any], field: str, words: str) -> None:
    rows = [*BAILIAN[:2], {**BAILIAN[2], **change}, BAILIAN[3]]
    with pytest.raises(InputError) as e:
        read_bytes(lines(rows), "q")
    assert (e.value.line, e.value.field) == (3, field)
    assert words in str(e.value)
    assert read_bytes(lines(rows), "q", skip_bad_rows=True).report.dropped == 1


def test_facts_of_ragpulse() -> None:
    w = read_workload(bundled()["ragpulse"])
    assert w.duration_s == 604_603
    assert len(w.sessions) == 3_990
    assert (round(float(w.num_prompt.mean())), round(float(np.median(w.num_prompt))), w.num_prompt.max()) == (2944, 3140, 7712)
    assert (round(float(w.num_output.mean())), np.median(w.num_output), w.num_output.max()) == (283, 234, 2183)
    assert w.report.notes == ("1 row stood before an earlier arrival; the requests were sorted by time.",)
    rest = w.runs["n"][w.first_run[1:] - 2]
    assert (rest.min(), rest.max()) == (6, 12)


def test_hit_rates_of_ragpulse() -> None:
    """0.180 of the chunks and 0.315 of the tokens by prefix; 0.72 of the tokens stand in chunks seen before somewhere."""
    w = read_workload(bundled()["ragpulse"])
    prompts = [w.runs["seed"][w.first_run[i] : w.first_run[i + 1] - 2].tolist() for i in range(len(w))]
    length = dict(zip(w.runs["seed"].tolist(), w.runs["n"].tolist(), strict=True))
    hits, total = infinite(prompts, chained=False)
    assert round(hits / total, 3) == 0.180
    seen: set[int] = set()
    anywhere: set[int] = set()
    tokens = everything = again = 0
    for prompt in prompts:
        keys = prefixes(prompt)
        tokens += sum(length[x] for x in prompt[: leading(keys, seen)])
        everything += sum(length[x] for x in prompt)
        again += sum(length[x] for x in prompt if x in anywhere)
        seen.update(keys)
        anywhere.update(prompt)
    assert round(tokens / everything, 3) == 0.315
    assert round(again / everything, 2) == 0.72


def test_ragpulse_rest_of_the_prompt_and_output() -> None:
    w = read_bytes(lines(RAGPULSE), "r")
    assert w.runs["n"].tolist() == [512, 512, 437, 113, 150, 355, 346, 326, 334, 11, 7, 9, 192]
    assert w.runs["seed"][:3].tolist() == [8302, 14332, 15199]
    assert w.runs["seed"][-1] == OUTPUT_SEED
    assert "chunk lengths are those of the published trace" in w.report.notes[0]


def test_ragpulse_side_files_beside_the_trace_are_used(tmp_path: Path) -> None:
    (tmp_path / "0_trace.jsonl").write_bytes(
        lines(
            [
                {
                    "timestamp": 5,
                    "input_length": 30,
                    "output_length": 1,
                    "hash_ids": {"sys_prompt": [1], "passages_ids": [2]},
                    "session_id": "x",
                }
            ]
        )
    )
    for stem, field, n in (
        ("1_sys_prompt", "sys_prompt_id", 10),
        ("2_passages", "passage_id", 13),
        ("3_history", "history_id", 1),
        ("4_user_input", "user_input_id", 1),
    ):
        (tmp_path / f"{stem}.jsonl").write_text(json.dumps({field: int(stem[0]), "token_length": n}) + "\n\n")
    with pytest.raises(InputError, match=r"5_web_search\.jsonl is missing"):
        read_workload(tmp_path)
    (tmp_path / "5_web_search.jsonl").write_text('{"web_search_id": 5, "token_length": 2}')
    for path in (tmp_path, tmp_path / "0_trace.jsonl"):
        assert read_workload(path).runs["n"].tolist() == [10, 13, 7, 1]
    (tmp_path / "5_web_search.jsonl").write_text('{"web_search_id": 5, "token_length": 2}\n{"web_search_id": 6, "token_length": 0}')
    with pytest.raises(InputError, match=r'5_web_search\.jsonl, line 2, field "token_length": the value is 0'):
        read_workload(tmp_path)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"timestamp": "x"}, "timestamp", 'the text "x"'),
        ({"timestamp": "-1"}, "timestamp", "-1"),
        ({"timestamp": None}, "timestamp", "null"),
        ({"timestamp": "nan"}, "timestamp", "nan"),
        ({"input_length": 100}, "input_length", "the chunks have 3103 tokens"),
        ({"hash_ids": {"sys_prompt": [999_999_999]}}, "hash_ids.sys_prompt", "has no length"),
        ({"hash_ids": {"sys_prompt": "x"}}, "hash_ids.sys_prompt", 'the text "x"'),
        ({"hash_ids": {"sys_prompt": [True]}}, "hash_ids.sys_prompt", "truth value"),
        ({"session_id": 3}, "session_id", "the value is 3"),
    ],
)
def test_ragpulse_wrong_fields(change: dict[str, Any], field: str, words: str) -> None:
    rows = [RAGPULSE[0], {**RAGPULSE[0], **change}]
    with pytest.raises(InputError) as e:
        read_bytes(lines(rows), "r", format="ragpulse")
    assert (e.value.line, e.value.field) == (2, field)
    assert words in str(e.value)
    assert read_bytes(lines(rows), "r", format="ragpulse", skip_bad_rows=True).report.dropped == 1


def test_ragpulse_prompt_without_chunks_is_content_of_its_own() -> None:
    w = read_bytes(lines([{**RAGPULSE[0], "hash_ids": {}}, RAGPULSE[0]]), "r")
    assert w.runs[: w.first_run[1]]["n"].tolist() == [3112, 192]
