"""Every answer to "why did this request miss?", each in a run made for it."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from simkv.diagnosis.why import KeyHistory, Miss, why_missed
from simkv.events import layout as ev
from simkv.replay import Run, replay
from tests.engine.cases import draw_case, replayed
from tests.engine.hand import VIRTUAL, request, run, shared, workload

KINDS = {
    "nothing to miss", "new content", "evicted", "cleared", "below a block", "other namespace", "not stored", "caching off", "not read",
    "never admitted", "not known",
}  # fmt: skip


def ask(result: Run, name: str) -> Miss:
    return why_missed(result, [result.workload.id(i) for i in range(len(result.workload))].index(name))


def test_evicted_names_who_and_when() -> None:
    """The pool holds 9 blocks: "filler" takes the tail of what "first" had cached, and "again" misses it."""
    requests = [request("first", [shared(25)]), request("filler", 20, 1, 10), request("again", [shared(25)], 1, 20)]
    result = run(requests, num_gpu_blocks=10, max_model_len=36)
    miss = ask(result, "again")
    assert (miss.kind, miss.hit_tokens, miss.prompt_tokens, miss.first_missing_block) == ("evicted", 16, 25, 4)
    ids = [result.workload.id(i) for i in range(3)]
    assert (miss.stored_by, miss.evicted_for) == (ids.index("first"), ids.index("filler"))
    assert miss.evicted_step is not None
    assert result.steps["time"][miss.evicted_step] == 10
    assert "cached by first, but evicted at step" in miss.sentence
    assert "to make room for filler" in miss.sentence


def test_evicted_in_seconds() -> None:
    requests = [request("first", [shared(25)]), request("filler", 20, 1, 10), request("again", [shared(25)], 1, 20.5)]
    miss = ask(run(requests, time=VIRTUAL, num_gpu_blocks=10, max_model_len=36), "again")
    assert miss.kind == "evicted"
    assert "evicted 10.5 s before to make room for filler" in miss.sentence


def test_evicted_twice_names_the_last_time() -> None:
    requests = [
        request("one", [shared(25)]),
        request("filler1", 33, 1, 10),
        request("two", [shared(25)], 1, 20),
        request("filler2", 33, 1, 30),
        request("three", [shared(25)], 1, 40),
    ]
    result = run(requests, num_gpu_blocks=10, max_model_len=36)
    miss = ask(result, "three")
    assert result.workload.id(miss.stored_by or 0) == "two"
    assert result.workload.id(miss.evicted_for or 0) == "filler2"
    assert ask(result, "two").sentence.endswith("filler1.")


def test_evicted_by_itself_only_after_the_lookup() -> None:
    """A request never misses what its own allocation takes away later in the same step."""
    requests = [request("first", [shared(33)]), request("other", [shared(4), shared(30, 2)], 1, 10)]
    miss = ask(run(requests, num_gpu_blocks=10, max_model_len=36), "other")
    assert (miss.kind, miss.hit_tokens) == ("new content", 4)


def test_cleared() -> None:
    requests = [request("first", [shared(25)]), request("again", [shared(25)], 1, 20)]
    result = run(requests, [{"at": 10, "op": "reset_prefix_cache"}])
    miss = ask(result, "again")
    assert (miss.kind, miss.hit_tokens, miss.first_missing_block, miss.evicted_for) == ("cleared", 0, 0, None)
    assert "reset_prefix_cache cleared it at step" in miss.sentence


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"cache_salt": "a"}, {}),
        ({"cache_salt": "a"}, {"cache_salt": "b"}),
        ({"lora": {"name": "x", "id": 1}}, {}),
        ({"lora": {"name": "x", "id": 1}}, {"lora": {"name": "y", "id": 2}}),
        ({"lora": {"name": "x", "id": 1, "path": "/1"}}, {"lora": {"name": "x", "id": 1, "path": "/2"}}),
    ],
)
def test_another_namespace(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    requests = [request("theirs", [shared(25)], 1, 0, **theirs), request("mine", [shared(25)], 1, 9, **mine)]
    miss = ask(run(requests), "mine")
    assert (miss.kind, miss.shared_with, miss.hit_tokens) == ("other namespace", 0, 0)
    assert "theirs had sent the same block 0" in miss.sentence
    assert "cache_salt or adapter" in miss.sentence


def test_the_same_namespace_comes_first() -> None:
    """Evicted from one's own namespace is the answer even if others had the content too."""
    requests = [
        request("own", [shared(25)], 1, 0, cache_salt="s"),
        request("others", [shared(25)], 1, 5),
        request("filler", 33, 1, 10),
        request("again", [shared(25)], 1, 20, cache_salt="s"),
    ]
    miss = ask(run(requests, num_gpu_blocks=10, max_model_len=36), "again")
    assert (miss.kind, miss.stored_by) == ("evicted", 0)


@pytest.mark.parametrize("segment", [shared(3), [5, 6, 7]])
def test_below_a_block(segment: Any) -> None:
    requests = [request("first", [segment, shared(20, 2)]), request("short", 4, 1, 5), request("tail", [segment, shared(20, 3)], 1, 9)]
    result = run(requests)
    miss = ask(result, "tail")
    assert (miss.kind, miss.hit_tokens, miss.first_missing_block) == ("below a block", 0, 0)
    assert "only 3 tokens with an earlier request: less than one block of 4" in miss.sentence
    short = ask(result, "short")
    assert (short.kind, short.first_missing_block) == ("below a block", None)
    assert "short has 4 prompt tokens" in short.sentence


def test_new_content() -> None:
    requests = [request("first", [shared(18), shared(9, 2)]), request("second", [shared(18), shared(9, 3)], 1, 5)]
    result = run(requests)
    miss = ask(result, "second")
    assert (miss.kind, miss.hit_tokens, miss.first_missing_block) == ("new content", 16, 4)
    assert "no earlier request had the same 20 first tokens" in miss.sentence
    assert "The longest prefix it shares with an earlier request is 18 tokens" in miss.sentence
    assert ask(result, "first").kind == "new content"


@pytest.mark.parametrize("prompt", [24, 25, 27])
def test_nothing_to_miss(prompt: int) -> None:
    """The last token is always computed: an aligned prompt recomputes a whole block."""
    miss = ask(run([request("a", [shared(prompt)]), request("b", [shared(prompt)], 1, 5)]), "b")
    assert (miss.kind, miss.hit_tokens) == ("nothing to miss", (prompt - 1) // 4 * 4)
    assert f"The last {prompt - miss.hit_tokens} are always computed" in miss.sentence


def test_caching_off_and_not_read() -> None:
    requests = [request("a", [shared(25)]), request("b", [shared(25)], 1, 5, skip_reading_prefix_cache=True)]
    assert ask(run(requests, enable_prefix_caching=False), "b").kind == "caching off"
    assert ask(run(requests), "b").kind == "not read"


def test_never_admitted() -> None:
    result = run([request("fits", 8), request("never", 60, 1, 1), request("behind", 9, 1, 2)], num_gpu_blocks=10)
    assert ask(result, "never").kind == ask(result, "behind").kind == "never admitted"
    refused = run([request("a", 300), request("b", 8, 1, 1)])
    assert ask(refused, "a").kind == "never admitted"


def test_not_computed_yet() -> None:
    """The same prompt is still being computed, a chunk a step, when the second request looks."""
    requests = [request("first", [shared(61)]), request("second", [shared(61)], 1, 1)]
    result = run(requests, max_num_batched_tokens=16, long_prefill_token_threshold=12)
    miss = ask(result, "second")
    assert miss.kind == "not stored"
    assert 0 < miss.hit_tokens < 60
    assert "first had not computed it yet" in miss.sentence


def test_a_sliding_window_keeps_little() -> None:
    """The default retention keeps the end of the prompt only: a shorter prompt with the same start finds nothing."""
    requests = [request("first", [shared(41)]), request("shorter", [shared(21), shared(9, 2)], 1, 5)]
    miss = ask(run(requests, sliding_window=9), "shorter")
    assert (miss.kind, miss.hit_tokens) == ("not stored", 0)
    assert "a sliding window keeps only blocks it can resume on" in miss.sentence


def test_groups_that_do_not_agree() -> None:
    """The full group has the prefix, the sliding group lacks the window behind it; whatever order the groups are in."""
    groups = [{"type": "sliding", "window": 9}, {"type": "full"}]
    requests = [request("first", [shared(41)]), request("shorter", [shared(21), shared(9, 2)], 1, 5)]
    for hybrid in (groups, groups[::-1]):
        miss = ask(run(requests, hybrid=hybrid), "shorter")
        assert (miss.kind, miss.hit_tokens, miss.stored_by) == ("not stored", 0, 0)
        assert "no resume point that every layer group agrees on" in miss.sentence


def test_without_a_log() -> None:
    w = workload([request("first", [shared(25)]), request("b", 25, 1, 5)])
    assert ask(replay(w, events=False), "b").kind == "not known"


@pytest.mark.parametrize("seed", range(60))
def test_an_answer_for_every_request(seed: int) -> None:
    """Any mix of features: an answer that fits the figures, and one history for all gives the same as one each."""
    result = replayed(draw_case(Random(900 + seed)))
    w = result.workload
    assert result.log is not None
    history = KeyHistory(result.log)
    for i in range(len(w)):
        miss = why_missed(result, i, history)
        assert miss == why_missed(result, i)
        assert miss.kind in KINDS
        assert miss.sentence.endswith(".")
        assert miss.prompt_tokens == w.num_prompt[i]
        if miss.kind not in ("never admitted", "caching off", "not read"):
            assert miss.hit_tokens == result.requests["hit"][i]
        if miss.kind == "evicted":
            assert miss.stored_by is not None
            assert miss.evicted_for is not None
            assert miss.evicted_step is not None
            assert result.steps["time"][miss.evicted_step] <= result.requests["scheduled"][i]
            rows = result.log.events[result.log.turn_slice(miss.evicted_step)]
            taken = rows[(rows["kind"] & ev.KIND_MASK) == ev.RECYCLED]
            assert miss.evicted_for in taken["req"]
        if miss.kind == "never admitted":
            assert np.isnan(result.requests["scheduled"][i])
