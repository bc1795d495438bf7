"""Questions people asked in public about automatic prefix caching, with the right answers (tests/cases/apc.json): what a prompt shares."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from simkv.comparison.metrics import figures
from simkv.diagnosis.why import why_missed
from simkv.replay import Run, replay
from simkv.settings import EngineSettings
from simkv.workload.transform import with_salts
from simkv.workload.workload import IMAGE
from tests.cases.public import assert_copy_is_true, cases, hits, one_by_one, own, rate, run
from tests.engine.hand import request, shared, workload

CASES = cases("apc")


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def test_the_copy_is_true() -> None:
    assert_copy_is_true("apc", "apc")


def test_only_full_blocks_are_found() -> None:
    """P-APC-01."""
    given, right = case("P-APC-01")
    prompts = [[shared(p["shared"]), own(i, p["unique"])] for i, p in enumerate(given["prompts"])]
    found = one_by_one(prompts, block_size=given["block_size"])
    assert hits(found)[1] == right["cached_tokens_second"]


def test_the_last_token_is_always_computed() -> None:
    """P-APC-02: identical prompts of every length around a block's edge, sent twice."""
    given, right = case("P-APC-02")
    for n, cached in zip(given["repeat_prompt_lengths"], right["cached"], strict=True):
        found = one_by_one([[shared(n)], [shared(n)]], block_size=given["block_size"])
        assert hits(found)[1] == cached
        assert why_missed(found, 1).kind in ("nothing to miss", "below a block")


@pytest.mark.parametrize("engine_run", [0, 1])
def test_a_block_longer_than_any_request(engine_run: int) -> None:
    """P-APC-04: blocks of 8,320 tokens (a Mamba hybrid's); prefix caching is inert below that, and the run says so."""
    given, right = case("P-APC-04")
    case_run, expected = given["runs"][engine_run], right[f"run{engine_run + 1}"]
    prompts = [[shared(case_run["prompt"])]] * case_run["repeats"]
    found = one_by_one(prompts, block_size=given["block_size"], max_model_len=case_run["max_model_len"], num_gpu_blocks=50)
    assert found.counters["queries"] == expected["queries"]
    assert found.counters["hits"] == expected["hits"]
    assert rate(found) == pytest.approx(expected.get("hit_rate", 0.0), abs=0.0001)
    warned = [note for note in found.resolved.notes if "prefix caching is inert" in note]
    assert bool(warned) == (given["block_size"] > case_run["max_model_len"])


def test_the_hit_rate_jumps_with_the_length() -> None:
    """P-APC-05: blocks of 528 tokens; the share found of a prompt sent twice."""
    given, right = case("P-APC-05")
    for n, cached, ratio in zip(given["second_send_of_identical_prompt"], right["cached"], right["ratio"], strict=True):
        found = one_by_one([[shared(n)], [shared(n)]], block_size=given["block_size"])
        assert hits(found)[1] == cached
        assert hits(found)[1] / n == pytest.approx(ratio, abs=0.001)


def stamped(given: dict[str, Any], offset: int) -> Run:
    """Requests with a time of their own at this offset of the common instructions."""
    system, stamp, n = given["system_tokens"], given["timestamp_tokens"], given["requests"]
    prompts = [
        [s for s in (shared(offset), own(i, stamp), shared(system - offset) | {"start": offset}) if s["n"]]
        + [own(1000 + i, given["unique_user_tokens"])]
        for i in range(n)
    ]
    return one_by_one(prompts, block_size=given["block_size"])


def test_a_timestamp_in_the_instructions() -> None:
    """P-APC-06: where it stands decides, not how long it is; and the diagnosis says what to do."""
    given, right = case("P-APC-06")
    for offset, tokens, ratio in zip(given["timestamp_offsets"], right["hits"], right["hit_rate"], strict=True):
        found = stamped(given, offset)
        assert found.counters["queries"] == right["queries"]
        assert found.counters["hits"] == tokens
        assert rate(found) == pytest.approx(ratio, abs=0.0001)
        miss = why_missed(found, given["requests"] - 1)
        assert miss.kind == "new content"
        assert (miss.cause == "changing text") == (offset < given["system_tokens"])


def conversation(given: dict[str, Any], keep: bool) -> Run:
    """A chat whose client sends the thinking back, or drops it. The token that ends an answer is said but never sent back."""
    turns = given["turns"]
    user, thought, answer = given["user_tokens"], given["reasoning_tokens"], given["answer_tokens"]
    requests: list[dict[str, Any]] = []
    history: list[dict[str, int]] = []
    for turn in range(turns):
        said = 500 + turn
        prompt = [*history, own(turn, user)]
        requests.append(request(f"t{turn}", prompt, thought + answer + 1, arrive=1000 * turn, out_seed=said, session="chat"))
        kept = [shared(thought + answer, said)] if keep else [shared(answer, said) | {"start": thought}]
        history = [*prompt, *kept]
    return run(requests, block_size=given["block_size"])


@pytest.mark.parametrize("mode", ["keep", "strip"])
def test_thinking_dropped_from_the_history(mode: str) -> None:
    """P-APC-07: the miss begins where the thinking began; the rate falls, and so does what is computed."""
    given, right = case("P-APC-07")
    found = conversation(given, mode == "keep")
    assert found.workload.num_prompt.tolist() == right[mode]["prompt_lengths"]
    assert hits(found) == right[mode]["cached"]
    assert rate(found) == pytest.approx(right[mode]["hit_rate"], abs=0.0001)
    if mode == "strip":
        miss = why_missed(found, given["turns"] - 1)
        assert miss.cause == "history cut"
        before = int(found.workload.num_prompt[given["turns"] - 2])
        assert miss.first_missing_block == before // given["block_size"]


def test_what_dropped_thinking_costs_and_saves() -> None:
    """P-APC-07: the rate alone misleads, the tokens computed stand beside it."""
    given, _ = case("P-APC-07")
    keep, strip = (figures(conversation(given, mode)) for mode in (True, False))
    assert keep["hit_rate"] > strip["hit_rate"]  # type: ignore[operator]
    assert keep["prefill_tokens"] == 128 * 5
    assert strip["prefill_tokens"] == 128 + 256 * 4


def test_tools_in_another_order() -> None:
    """P-APC-08: the first tool differs, so nothing behind the text before the tools is found."""
    given, right = case("P-APC-08")
    count = 12
    tools = [shared(given["tools_tokens"] // count, 100 + k) for k in range(count)]
    system, history = shared(given["tools_at_offset"]), shared(given["history_after_tools"], 3)
    rng = random.Random(8)
    first = rng.sample(range(count), count)
    prompts = []
    for turn in range(count):
        order = [first[turn], *rng.sample([k for k in range(count) if k != first[turn]], count - 1)]
        prompts.append([system, *(tools[k] for k in order), history])
    shuffled = one_by_one(prompts, block_size=given["block_size"])
    assert max(hits(shuffled)) == right["shuffled_cached_max"]
    miss = why_missed(shuffled, count - 1)
    assert miss.cause == "other order"
    assert miss.first_missing_block == given["tools_at_offset"] // given["block_size"]
    canonical = one_by_one([[system, *tools, history]] * 2, block_size=given["block_size"])
    assert f"{hits(canonical)[1]} for an identical resend of {canonical.workload.num_prompt[1]} tokens" == right["canonical_cached"]


def namespaced(given: dict[str, Any], groups: int, each: int, **of_group: Any) -> Run:
    """Requests of several groups in turn: common instructions and something of their own; ``of_group``: field -> value of a group."""
    requests = []
    for i in range(groups * each):
        more = {name: value(i % groups) for name, value in of_group.items()}
        requests.append(request(f"r{i}", [shared(given["shared_system"]), own(i, given["unique"])], arrive=i, **more))
    return run(requests, block_size=given["block_size"])


def test_adapters_share_nothing() -> None:
    """P-APC-09: by design, the adapter is part of the hash."""
    given, right = case("P-APC-09")
    adapters, each = given["adapters"], given["requests_per_adapter"]
    apart = namespaced(given, adapters, each, lora=lambda k: {"name": f"a{k}", "id": k + 1})
    base = namespaced(given, adapters, each)
    assert rate(apart) == pytest.approx(right["per_adapter_hit_rate"], abs=0.0001)
    assert rate(base) == pytest.approx(right["if_base_model_shared"], abs=0.0001)
    assert why_missed(apart, adapters - 1).kind == "other namespace"


def test_what_a_salt_per_tenant_costs() -> None:
    """P-APC-10: tokens computed again and copies kept, one for each tenant beyond the first; and nobody hits across salts."""
    given, right = case("P-APC-10")
    tenants, each = given["tenants"], given["requests_per_tenant"]
    prompts = [
        request(f"r{i}", [shared(given["shared_system"]), own(i, given["unique"])], arrive=i, tenant=f"t{i % tenants}")
        for i in range(tenants * each)
    ]
    w = workload(prompts, block_size=given["block_size"], num_gpu_blocks=100_000, max_model_len=4096)
    runs = {mode: replay(with_salts(w, mode), EngineSettings()) for mode in ("off", "per tenant")}
    for mode, name in (("off", "none"), ("per tenant", "per_tenant")):
        assert runs[mode].counters["hits"] == right[name]["hits"]
        assert rate(runs[mode]) == pytest.approx(right[name]["rate"], abs=0.0001)
    computed = {mode: int(r.steps["prefill"].sum()) for mode, r in runs.items()}
    assert computed["per tenant"] - computed["off"] == right["extra_prefill_tokens"]
    more = runs["per tenant"].counters["stored"] - runs["off"].counters["stored"]
    assert more * given["block_size"] == right["extra_copies"] * given["shared_system"]
    first, again = hits(runs["per tenant"])[:tenants], hits(runs["per tenant"])[tenants:]
    assert set(first) == {0}
    assert set(again) == {given["shared_system"]}
    assert why_missed(runs["per tenant"], 1).kind == "other namespace"


def pictures(spans: list[tuple[int, int, str]], per: list[list[str]], tokens: int) -> Run:
    """The same text and placeholders for every request, with pictures at ``[first, last)``; ``per``: which pictures of each request."""
    requests = [request(f"r{i}", [list(range(10, 10 + tokens))], arrive=i) for i in range(len(per))]
    w = workload(requests, block_size=4)
    names = sorted({name for request_pictures in per for name in request_pictures})
    rows = [(names.index(name), first, last - first) for mine in per for name, (first, last, _) in zip(mine, spans, strict=True)]
    w = dataclasses.replace(
        w,
        first_image=np.arange(0, len(rows) + 1, len(spans), dtype=np.int64),
        images=np.array(rows, IMAGE),
        image_identifiers=tuple(names),
    )
    return replay(w, EngineSettings())


def test_the_same_text_with_other_pictures() -> None:
    """P-APC-11: placeholders are equal, pictures are not; a picture that changes takes all behind its first block with it."""
    given, right = case("P-APC-11")
    assert given["block_size"] == 4
    spans = [(*given["image_a_span"], "a"), (*given["image_b_span"], "b")]
    length = len(given["tokens"].replace("|", "").split())
    changed = pictures(spans, [["a", "b"], ["other", "b"]], length)
    assert hits(changed)[1] // 4 == right["cached_blocks_second_request"]
    same = pictures(spans, [["a", "b"], ["a", "b"]], length)
    assert hits(same)[1] // 4 == right["same_images_cached_blocks"]
    later = [(first + 4, last + 4, name) for first, last, name in spans]
    text_first = pictures(later, [["a", "b"], ["other", "b"]], length + 4)
    assert hits(text_first)[1] == 4


def test_prompt_logprobs_do_not_read_but_write() -> None:
    """P-APC-13: such requests skip the lookup and are no part of the hit rate; what they compute is found by others."""
    given, right = case("P-APC-13")
    requests = [
        request(f"r{i}", [shared(r["n"])], arrive=i, skip_reading_prefix_cache=r["prompt_logprobs"])
        for i, r in enumerate(given["requests"])
    ]
    found = run(requests, block_size=given["block_size"])
    assert hits(found) == right["cached"]
    counted = [r["n"] for r, c in zip(given["requests"], right["counted_in_queries"], strict=True) if c]
    assert found.counters["queries"] == sum(counted)
    assert why_missed(found, 1).kind == "not read"
    alone = run(requests[1:], block_size=given["block_size"])
    assert hits(alone) == [0, right["cached"][2]]
