"""Mooncake: facts of the published traces, hit rates against references, and every way a row can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.workload.bundled import bundled
from simkv.workload.registry import read_bytes, read_workload
from simkv.workload.workload import OUTPUT_SEED, Workload
from tests.workload.reference import infinite, lru
from tests.workload.samples import MOONCAKE, lines


@pytest.fixture(scope="module")
def conversation() -> Workload:
    return read_workload(bundled()["mooncake_conversation"])


@pytest.fixture(scope="module")
def synthetic() -> Workload:
    return read_workload(bundled()["mooncake_synthetic"])


def blocks(w: Workload) -> list[list[int]]:
    return [w.runs["seed"][w.first_run[i] : w.first_run[i + 1] - 1].tolist() for i in range(len(w))]


def test_facts_of_the_conversation_trace(conversation: Workload) -> None:
    w = conversation
    assert round(w.duration_s) == 3537
    assert len(np.unique(w.arrive)) == 1180
    assert round(float(w.num_prompt.mean())) == 12_035
    assert np.median(w.num_prompt) == 6_909
    assert (w.num_prompt.min(), w.num_prompt.max()) == (891, 126_195)
    assert w.num_output.mean() == pytest.approx(342.6, abs=0.05)
    assert w.num_output.max() == 2_000
    prompts = blocks(w)
    assert sum(map(len, prompts)) == 288_500
    assert len({b for p in prompts for b in p}) == 182_790
    assert all(p[0] == 0 for p in prompts)
    assert w.report == type(w.report)(rows=12_031)


def test_facts_of_the_synthetic_trace(synthetic: Workload) -> None:
    w = synthetic
    assert round(w.duration_s) == 1022
    assert len(np.unique(w.arrive)) == 3_982
    assert (w.num_prompt.min(), w.num_prompt.max()) == (13, 191_378)
    prompts = blocks(w)
    assert sum(map(len, prompts)) == 121_877
    assert len({p[0] for p in prompts}) == 2_211
    assert len({b for p in prompts for b in p}) == 43_924


def test_best_possible_hit_rates(conversation: Workload, synthetic: Workload) -> None:
    for w, by_block, by_token in ((conversation, 0.3664, 0.3736), (synthetic, 0.6396, 0.6512)):
        prompts = blocks(w)
        hits, total = infinite(prompts, chained=True)
        assert round(hits / total, 4) == by_block
        seen: set[int] = set()
        tokens = 0
        for i, prompt in enumerate(prompts):
            n = next((k for k, b in enumerate(prompt) if b not in seen), len(prompt))
            tokens += int(w.runs["n"][w.first_run[i] : w.first_run[i] + n].sum())
            seen.update(prompt)
        assert round(tokens / int(w.num_prompt.sum()), 4) == by_token


@pytest.mark.parametrize(
    ("trace", "tail_first", "rates"),
    [
        ("conversation", True, {1_000: 0.0445, 3_000: 0.0653, 5_000: 0.1118, 10_000: 0.2116, 30_000: 0.3257, 50_000: 0.3546}),
        ("conversation", False, {1_000: 0.0445, 3_000: 0.0650, 5_000: 0.1104, 10_000: 0.2112, 30_000: 0.3257, 50_000: 0.3546}),
        ("synthetic", True, {1_000: 0.0841, 3_000: 0.1906, 5_000: 0.2793, 10_000: 0.4239, 30_000: 0.6242, 50_000: 0.6396}),
    ],
)
def test_hit_rates_of_a_bounded_cache(trace: str, tail_first: bool, rates: dict[int, float], request: pytest.FixtureRequest) -> None:
    prompts = blocks(request.getfixturevalue(trace))
    assert {n: round(lru(prompts, n, tail_first), 4) for n in rates} == rates


@pytest.mark.parametrize(
    ("trace", "rates"),
    [("conversation", [0.0523, 0.1954, 0.2784, 0.3535, 0.3631]), ("synthetic", [0.0343, 0.1548, 0.2598, 0.4434, 0.5888])],
)
def test_hit_rates_published_by_others(trace: str, rates: list[float], request: pytest.FixtureRequest) -> None:
    """Capacity as 1, 5, 10, 25 and 50 % of all different blocks; an independent report has the same to three digits."""
    prompts = blocks(request.getfixturevalue(trace))
    unique = len({b for p in prompts for b in p})
    assert [round(lru(prompts, int(share * unique), False), 4) for share in (0.01, 0.05, 0.10, 0.25, 0.50)] == rates


def test_a_row_becomes_runs() -> None:
    w = read_bytes(lines(MOONCAKE), "m")
    assert w.runs[: w.first_run[1]].tolist() == [(0, 0, 512), (1, 0, 512), (2, 0, 276), (OUTPUT_SEED, 0, 5)]
    assert w.runs[w.first_run[1] : w.first_run[2]].tolist() == [(0, 0, 512), (3, 0, 512), (OUTPUT_SEED + 1, 0, 7)]
    assert w.arrive.tolist() == [0, 0, 2.5, 3.0]


def test_large_ids_are_renamed() -> None:
    big = [{**r, "hash_ids": [x * 10**15 + 5 for x in r["hash_ids"]]} for r in MOONCAKE]
    assert np.array_equal(read_bytes(lines(big), "m").runs, read_bytes(lines(MOONCAKE), "m").runs)


def test_other_block_sizes_are_recognised() -> None:
    rows = [{"timestamp": i, "input_length": 40 + i, "output_length": 2, "hash_ids": [1, 2, 3 + i]} for i in range(5)]
    w = read_bytes(lines(rows), "m")
    assert w.runs["n"][:3].tolist() == [16, 16, 8]
    assert "blocks of 16 tokens" in w.report.notes[0]


def test_no_output_is_one_token_and_noted() -> None:
    w = read_bytes(lines([{**MOONCAKE[0], "output_length": 0}, *MOONCAKE[1:]]), "m")
    assert w.num_output[0] == 1
    assert "1 request with output_length 0 replayed with 1 token" in w.report.notes[0]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("timestamp", -1, "the value is -1"),
        ("timestamp", "3", 'the text "3"'),
        ("timestamp", None, "null"),
        ("timestamp", True, "truth value true"),
        ("timestamp", float("nan"), "nan"),
        ("timestamp", float("inf"), "inf"),
        ("timestamp", 10**400, "1000"),
        ("input_length", 0, "the value is 0"),
        ("input_length", 1300.5, "1300.5"),
        ("input_length", True, "truth value"),
        ("input_length", 1 << 40, "1099511627776"),
        ("input_length", [1300], "a list"),
        ("output_length", -4, "-4"),
        ("output_length", "five", "five"),
        ("hash_ids", [0, 1], "2 ids for 1300 tokens"),
        ("hash_ids", [0, 1, -2], "one of the ids is -2"),
        ("hash_ids", [0, 1, 2.5], "one of the ids is 2.5"),
        ("hash_ids", [0, 1, False], "truth value false"),
        ("hash_ids", [0, 1, "2"], 'the text "2"'),
        ("hash_ids", [0, 1, 1 << 63], "9223372036854775808"),
        ("hash_ids", {"a": 1}, "an object"),
        ("hash_ids", None, "null"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, words: str) -> None:
    rows = [*MOONCAKE, {**MOONCAKE[0], field: value}]
    with pytest.raises(InputError) as e:
        read_bytes(lines(rows), "m.jsonl")
    assert (e.value.file, e.value.line, e.value.field) == ("m.jsonl", 5, field)
    assert words in str(e.value)
    assert e.value.expected
    w = read_bytes(lines(rows), "m.jsonl", skip_bad_rows=True)
    assert (w.report.rows, w.report.dropped, len(w)) == (5, 1, 4)
    assert w.report.first_dropped == (str(e.value),)


@pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_a_missing_field_is_named(field: str) -> None:
    row = {k: v for k, v in MOONCAKE[0].items() if k != field}
    with pytest.raises(InputError, match=f'line 2, field "{field}": the field is missing; expected'):
        read_bytes(lines([MOONCAKE[0], row]), "m")


@pytest.mark.parametrize("text", ["{", "nonsense", "[1]", "3", '{"timestamp": 0,', "null", '{"timestamp": ' + "1" * 5000 + "}"])
def test_a_line_that_is_no_object(text: str) -> None:
    data = lines(MOONCAKE) + text.encode()
    with pytest.raises(InputError) as e:
        read_bytes(data, "m")
    assert e.value.line == 5
    assert read_bytes(data, "m", skip_bad_rows=True).report.dropped == 1


def test_the_first_five_dropped_rows_are_listed_and_all_are_counted() -> None:
    rows = [{**MOONCAKE[0], "input_length": -k} for k in range(1, 8)] + MOONCAKE
    report = read_bytes(lines(rows), "m", skip_bad_rows=True).report
    assert (report.rows, report.dropped, len(report.first_dropped)) == (11, 7, 5)
    assert all(f"line {k}" in sentence for k, sentence in enumerate(report.first_dropped, 1))


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(InputError, match="all 1 rows were dropped; the first:"):
        read_bytes(lines([{**MOONCAKE[0], "input_length": -1}]), "m", skip_bad_rows=True)


def test_whole_numbers_may_be_written_with_a_point() -> None:
    rows = [{**r, "input_length": float(r["input_length"])} for r in MOONCAKE]  # type: ignore[arg-type]
    assert np.array_equal(read_bytes(lines(rows), "m").runs, read_bytes(lines(MOONCAKE), "m").runs)


def test_pieces_of_a_long_file_join(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_bytes(lines(MOONCAKE * 50), "m")
    monkeypatch.setattr("simkv.workload.rows.PIECE", 300)
    assert np.array_equal(read_bytes(lines(MOONCAKE * 50), "m").runs, whole.runs)
