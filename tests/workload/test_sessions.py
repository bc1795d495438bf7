"""Claude Code sessions and chats known by their lengths: ids renamed, subagents, pacing."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from tests.workload.reference import addresses, infinite
from tests.workload.samples import CHATS, SESSION, lines


def raw_prompts(folder: Path) -> list[list[tuple[str, int]]]:
    """Block ids of every request, with their session, as the files have them."""
    out: list[list[tuple[str, int]]] = []

    def walk(session: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if "requests" in row:
                walk(session, row["requests"])
            else:
                out.append([(session, x) for x in row["hash_ids"]])

    for path in sorted(folder.glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        walk(document["id"], document["requests"])
    return out


def test_the_bundled_sessions_share_what_their_ids_say() -> None:
    """Blocks, different blocks and ideal hits counted from the files and from the workload agree."""
    w = read_workload(bundled()["claude_code"])
    raw = raw_prompts(bundled()["claude_code"])
    mine = [addresses(w, i, 64)[: w.num_prompt[i] // 64] for i in range(len(w))]
    assert sum(map(len, mine)) == sum(map(len, raw))
    assert len({x for p in mine for x in p}) == len({x for p in raw for x in p})
    hits, total = infinite(mine, chained=False)
    assert hits == infinite(raw, chained=False)[0]
    assert 0.9 < hits / total < 1


def test_facts_of_the_bundled_sessions() -> None:
    w = read_workload(bundled()["claude_code"])
    assert w.sessions == tuple(
        f"trace_{k}" for k in ("0034", "0137", "0166", "0274", "0277", "0282", "0291", "0318", "0587", "0636", "0686")
    )
    assert w.num_prompt.max() == 167_120
    assert any("11 sessions without a common clock" in note for note in w.report.notes)
    assert w.report.rows == len(w)
    assert len(w.runs) < 5_000  # blocks whose ids count up are one run


def test_a_subagent_begins_its_duration_before_its_time() -> None:
    w = read_bytes(json.dumps(SESSION).encode(), "s")
    assert w.ids == ["trace_1/0", "trace_1/agent_001/0", "trace_1/agent_001/1", "trace_1/1", "trace_1/2"]
    assert w.arrive.tolist() == [0, 2.5, 7.5, 20, 30]
    assert w.after is None


def test_every_bundled_subagent_begins_right_after_the_answer_that_started_it() -> None:
    w = read_workload(bundled()["claude_code"], think="closed")
    assert w.ids is not None
    assert w.after is not None
    first = [i for i, name in enumerate(w.ids) if "agent" in name and name.endswith("/0")]
    assert len(first) == 12
    assert all(0 <= w.arrive[i] < 5 for i in first)


def test_closed_loop_waits_for_the_answer_then_thinks() -> None:
    w = read_bytes(json.dumps(SESSION).encode(), "s", think="closed")
    assert w.after is not None
    assert w.after.tolist() == [-1, 0, 1, 2, 3]
    assert w.arrive.tolist() == pytest.approx([0, 0.5, 2.0, 6.0, 9.0])


def test_what_has_no_id_is_shared_with_nobody() -> None:
    w = read_bytes(json.dumps(SESSION).encode(), "s")
    a, b, c, d, e = (addresses(w, i, 64) for i in range(5))
    assert a[:2] == d[:2] == e[:2]
    assert b[0] == c[0]
    assert len({a[2], b[1], c[2], e[4]}) == 4
    assert not {a[2], b[1], c[2], e[4]} & {*a[:2], *b[:1], *c[:2], *d, *e[:4]}
    assert d == e[:4]


def test_ids_of_one_session_mean_nothing_in_another(tmp_path: Path) -> None:
    other = {**copy.deepcopy(SESSION), "id": "trace_2"}
    for k, document in enumerate((SESSION, other)):
        (tmp_path / f"{k}.json").write_text(json.dumps(document))
    (tmp_path / "README.md").write_text("not a session")
    w = read_workload(tmp_path)
    assert w.sessions == ("trace_1", "trace_2")
    by_session: list[set[int]] = [set(), set()]
    assert w.session is not None
    for i in range(len(w)):
        by_session[w.session[i]].update(addresses(w, i, 64))
    assert not by_session[0] & by_session[1]
    for k, document in enumerate((SESSION, other)):
        (tmp_path / f"{k}.json").write_text(json.dumps({**document, "hash_id_scope": "global"}))
    w = read_workload(tmp_path)
    first = [i for i, name in enumerate(w.ids or ()) if name.endswith(("_1/0", "_2/0"))]
    assert addresses(w, first[0], 64)[:2] == addresses(w, first[1], 64)[:2]


def test_a_damaged_session_is_named_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(json.dumps(SESSION))
    (tmp_path / "bad.json").write_text(json.dumps(SESSION)[:200])
    with pytest.raises(InputError, match=r"bad\.json, line 1: not JSON"):
        read_workload(tmp_path)
    w = read_workload(tmp_path, skip_bad_rows=True)
    assert (w.report.rows, w.report.dropped, len(w)) == (6, 1, 5)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"in": 0}, "requests[2].in", "the value is 0"),
        ({"out": None}, "requests[2].out", "null"),
        ({"hash_ids": [1]}, "requests[2].hash_ids", "1 ids for 256 tokens"),
        ({"hash_ids": [1, 2, 3, True]}, "requests[2].hash_ids", "truth value"),
        ({"t": "soon"}, "requests[2].t", '"soon"'),
        ({"t": float("nan")}, "requests[2].t", "nan"),
        ({"think_time": -1}, "requests[2].think_time", "-1"),
        ({"api_time": "x"}, "requests[2].api_time", '"x"'),
    ],
)
def test_a_wrong_field_of_a_request(change: dict[str, Any], field: str, words: str) -> None:
    document = copy.deepcopy(SESSION)
    document["requests"][2].update(change)  # type: ignore[index]
    with pytest.raises(InputError) as e:
        read_bytes(json.dumps(document).encode(), "s")
    assert e.value.field == field
    assert words in str(e.value)
    w = read_bytes(json.dumps(document).encode(), "s", skip_bad_rows=True)
    assert (w.report.rows, w.report.dropped, len(w)) == (5, 1, 4)


def test_a_missing_field_of_a_request() -> None:
    document = copy.deepcopy(SESSION)
    del document["requests"][0]["hash_ids"]  # type: ignore[index]
    with pytest.raises(InputError, match=r'field "requests\[0\]\.hash_ids": the field is missing'):
        read_bytes(json.dumps(document).encode(), "s")


def test_chats_grow_by_their_answers() -> None:
    w = read_bytes(lines(CHATS), "c")
    assert w.num_prompt.tolist() == [9, 39, 8]
    assert w.num_output.tolist() == [20, 14, 8]
    assert w.after is not None
    assert w.after.tolist() == [-1, 0, -1]
    assert w.arrive.tolist() == [0, 0, 1]
    assert w.runs.tolist() == [(0, 0, 29), (0, 0, 53), (1, 0, 16)]


def test_facts_of_the_chat_lengths() -> None:
    w = read_workload(bundled()["sharegpt_lengths"])
    assert w.report.rows == 2_000 == len(w.sessions)
    assert np.count_nonzero(np.asarray(w.after) < 0) == len(np.unique(w.session))


@pytest.mark.parametrize("turns", [None, [["gpt"]], [["gpt", -1]], [["gpt", 1.5]], [[1, 2]], [["human", 1 << 31]]])
def test_wrong_turns(turns: Any) -> None:
    data = lines([CHATS[0], {"conv": 2, "turns": turns}])
    with pytest.raises(InputError, match="line 2"):
        read_bytes(data, "c")
    assert read_bytes(data, "c", skip_bad_rows=True).report.dropped == 1
