"""Azure and BurstGPT: facts of the published files, failed calls, times in several forms, wrong cells."""

from __future__ import annotations

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from tests.workload.samples import AZURE, BURSTGPT


def test_facts_of_azure_code() -> None:
    w = read_workload(bundled()["azure_code_2023"])
    gaps = np.diff(w.arrive)
    assert round(w.duration_s) == 3436
    assert round(float(w.num_prompt.mean())) == 2048
    assert (np.median(w.num_prompt), w.num_prompt.max()) == (1469, 7437)
    assert (round(float(w.num_output.mean()), 1), np.median(w.num_output)) == (27.9, 13)
    assert round(float(gaps.max())) == 217
    assert float(gaps.std() / gaps.mean()) == pytest.approx(13.2, abs=0.1)
    assert w.num_prompt[-1] == 549
    assert not w.prompts_have_content
    assert "says nothing about content" in w.report.notes[0]


def test_facts_of_azure_conversation() -> None:
    w = read_workload(bundled()["azure_conv_2023"])
    gaps = np.diff(w.arrive)
    assert round(w.duration_s) == 3502
    assert (round(float(w.num_prompt.mean())), np.median(w.num_prompt), w.num_prompt.max()) == (1155, 1020, 14_050)
    assert (round(float(w.num_output.mean())), np.median(w.num_output), w.num_output.max()) == (211, 129, 1000)
    assert float(gaps.std() / gaps.mean()) == pytest.approx(1.09, abs=0.01)


def test_azure_times_keep_their_seventh_digit() -> None:
    assert read_bytes(AZURE, "a").arrive.tolist() == pytest.approx([0, 0.052, 0.0520001], abs=1e-9)


@pytest.mark.parametrize("zone", ["+00:00", "Z", "+02:00", "-0530"])
def test_azure_times_with_a_zone(zone: str) -> None:
    data = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        + "\n".join(f"2024-05-10 00:00:{s}{zone},10,5" for s in ("00.009930", "01", "01.5"))
        + "\n"
    )
    assert read_bytes(data.encode(), "a").arrive.tolist() == pytest.approx([0, 0.99007, 1.49007], abs=1e-6)


def test_azure_times_of_mixed_zones() -> None:
    data = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 02:00:00+02:00,1,1\n2024-05-10 00:00:03Z,2,2\n"
    assert read_bytes(data, "a").arrive.tolist() == [0.0, 3.0]


def test_prompts_share_nothing() -> None:
    w = read_bytes(AZURE, "a")
    assert w.runs["seed"][::2].tolist() == [0, 1, 2]
    assert w.runs["n"].tolist() == [4808, 10, 3180, 8, 110, 27]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        (b"4808", b"-3", 2, "ContextTokens", "the value is -3"),
        (b"4808", b"0", 2, "ContextTokens", "the value is 0"),
        (b"4808", b"4_808", 2, "ContextTokens", '"4_808"'),
        (b"4808", b"1e3", 2, "ContextTokens", None),
        (b"3180", b"99999999999", 3, "ContextTokens", "99999999999"),
        (b"3180", b"3180.5", 3, "ContextTokens", "3180.5"),
        (b",8\r", b",\r", 3, "GeneratedTokens", '""'),
        (b",8\r", b",nan\r", 3, "GeneratedTokens", "nan"),
        (b",8\r", b",true\r", 3, "GeneratedTokens", "true"),
        (b"18:17:04.0319600", b"18:77:04", 3, "TIMESTAMP", "18:77:04"),
        (b"2023-11-16 18:17:04.0319600", b"yesterday", 3, "TIMESTAMP", "yesterday"),
        (b"2023-11-16 18:17:04.0319600", b"2023-11-16", 3, "TIMESTAMP", "2023-11-16"),
        (b"2023-11-16 18:17:04.0319600", b"NaT", 3, "TIMESTAMP", "NaT"),
        (b",8\r", b",8,9\r", 3, None, "4 values; expected 3"),
        (b",8\r", b"\r", 3, None, "2 values; expected 3"),
    ],
)
def test_a_wrong_cell_is_named(old: bytes, new: bytes, line: int, field: str | None, words: str | None) -> None:
    data = AZURE.replace(old, new, 1)
    if words is None:
        assert len(read_bytes(data, "a.csv")) == 3
        return
    with pytest.raises(InputError) as e:
        read_bytes(data, "a.csv")
    assert (e.value.line, e.value.field) == (line, field)
    assert words in str(e.value)
    w = read_bytes(data, "a.csv", skip_bad_rows=True)
    assert (w.report.rows, w.report.dropped, len(w)) == (3, 1, 2)


def test_two_wrong_cells_are_reported_in_order_of_the_file() -> None:
    data = AZURE.replace(b"4808", b"x").replace(b"2023-11-16 18:17:04.0319600", b"y")
    with pytest.raises(InputError, match="line 2"):
        read_bytes(data, "a")
    assert len(read_bytes(data, "a", skip_bad_rows=True)) == 1


def test_missing_column_and_no_rows() -> None:
    with pytest.raises(InputError, match='field "generatedtokens": the column is missing; the header has timestamp, contexttokens, x'):
        read_bytes(AZURE.replace(b"GeneratedTokens", b"x"), "a")
    with pytest.raises(InputError, match="no rows after the header"):
        read_bytes(AZURE.split(b"\r\n")[0] + b"\r\n", "a")


def test_columns_may_stand_in_another_order_and_be_quoted() -> None:
    data = b'"GeneratedTokens","TIMESTAMP","ContextTokens"\n"10","2023-11-16 18:17:03","4808"\n8,2023-11-16 18:17:04,3180\n'
    w = read_bytes(data, "a")
    assert (w.num_prompt.tolist(), w.num_output.tolist(), w.arrive.tolist()) == ([4808, 3180], [10, 8], [0, 1])


def test_failed_calls_of_burstgpt_are_left_out_and_reported() -> None:
    w = read_bytes(BURSTGPT, "b.csv")
    assert (w.arrive.tolist(), w.num_prompt.tolist(), w.num_output.tolist()) == ([0, 113], [472, 417], [18, 276])
    assert (w.report.rows, w.report.dropped) == (3, 1)
    assert w.report.first_dropped == ("b.csv, line 3: Response tokens is 0, the call had failed.",)
    assert "1 failed call (Response tokens 0) left out" in w.report.notes[0]


def test_many_failed_calls_are_counted() -> None:
    w = read_bytes(BURSTGPT + b"119,GPT-4,10,0,10,API log\n" * 9, "b.csv")
    assert (w.report.rows, w.report.dropped, len(w.report.first_dropped)) == (12, 10, 5)


def test_sessions_of_newer_burstgpt_files() -> None:
    data = (
        b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"3,a,0.5,ChatGPT,10,5,15,Conversation log\n1,b,0.5,ChatGPT,20,6,26,Conversation log\n2,a,0.5,ChatGPT,30,0,30,Conversation log\n"
    )
    w = read_bytes(data, "b")
    assert w.session is not None
    assert [w.sessions[k] for k in w.session] == ["b", "a"]
    assert w.num_prompt.tolist() == [20, 10]


def test_an_answer_to_nothing_is_wrong() -> None:
    with pytest.raises(InputError, match='line 4, field "Request tokens": an answer of 276 tokens to a request of 0'):
        read_bytes(BURSTGPT.replace(b"417", b"0"), "b")
