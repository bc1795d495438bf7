import dataclasses
import math

import pytest

from simkv.ui.verdict import Story, verdict

STORY = Story(
    requests=1000,
    finished=1000,
    prompt_tokens=12_000_000,
    hits=2_244_000,
    ceiling=0.373,
    evicted=50_000,
    first_eviction_s=192.0,
    num_blocks=4096,
    block_size=16,
    preemptions=0,
    ttft_p95_s=1.2,
    queue_p95_s=0.1,
)


def told(**changes: object) -> str:
    return verdict(dataclasses.replace(STORY, **changes))  # type: ignore[arg-type]


def test_evictions_that_cost_hits_are_the_headline() -> None:
    sentence = told()
    assert sentence == (
        "18.7 % of prompt tokens came from the cache, 37.3 % could have: the pool of 4,096 blocks (65.5 k tokens) "
        "evicts prefixes before they return from 0:03:12 on."
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hits": 4_476_000}, "what the pool of 4,096 blocks (65.5 k tokens) evicts does not return"),
        ({"evicted": 0, "first_eviction_s": math.nan, "hits": 4_476_000}, "nothing was evicted"),
        ({"evicted": 0, "hits": 1000, "ceiling": 0.0}, "Only 0.0 % of prompt tokens"),
        ({"evicted": 0, "first_eviction_s": math.nan, "hits": 0, "ceiling": 0.0}, "No prompt token came from the cache, though"),
        (
            {"evicted": 0, "first_eviction_s": math.nan, "hits": 0, "ceiling": 0.0, "below_block": 9},
            "No prompt token came from the cache, though nothing was evicted: these prompts share at most their first 9 tokens, less"
            " than one block of 16.",
        ),
        ({"caching": False, "prompt_tokens": 0, "hits": 0}, "Prefix caching is off"),
        ({"has_content": False}, "lengths but no content"),
        ({"prompt_tokens": 0, "hits": 0}, "No request was admitted"),
        ({"ceiling": math.nan}, "50,000 blocks were evicted"),
        ({"status": "partial", "finished": 10, "end_s": 60.0}, "Partial result, stopped at 0:01:00 with 10 of 1,000 requests finished."),
        ({"status": "stalled", "finished": 10}, "stalled with 10 of 1,000"),
        ({"preemptions": 107}, "preempted 107 times"),
        ({"preemptions": 1}, "1 request was preempted"),
        ({"preemptions": 1, "moved": True}, "1 request was moved to host memory as a whole"),
        ({"preemptions": 3, "moved": True}, "Requests were 3 times moved to host memory as a whole"),
        ({"queue_p95_s": 1000.0, "ttft_p95_s": 1063.0}, "they come faster than this replica computes"),
        ({"queue_p95_s": 1000.0, "ttft_p95_s": 1063.0, "waiting_for": "memory"}, "the running ones hold the pool"),
        ({"rejected": 3}, "3 of 1,000 requests are longer than max_model_len and were rejected."),
        ({"rejected": 1, "requests": 1}, "1 of 1 request is longer than max_model_len and was rejected."),
        ({"ceiling": math.nan, "evicted": 1}, "1 block was evicted"),
        ({"time_unit": "steps"}, "from step 192 on"),
    ],
)
def test_each_case_has_its_sentence(changes: dict[str, object], expected: str) -> None:
    assert expected in told(**changes)


def test_no_figure_is_ever_nan() -> None:
    for changes in (
        {},
        {"ceiling": math.nan},
        {"prompt_tokens": 0, "hits": 0},
        {"caching": False, "ceiling": math.nan},
        {"ttft_p95_s": math.nan},
    ):
        assert "nan" not in told(**changes)


def test_what_the_host_tier_gave_back_is_a_sentence_of_its_own() -> None:
    assert "host" not in told()
    assert told(from_host=0).endswith(" Nothing came from the host tier.")
    assert told(from_host=3_012_000).endswith(" The host tier gave back another 25.1 %: 43.8 % were not computed.")
    assert "host" not in told(from_host=5, has_content=False)
