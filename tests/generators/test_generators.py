"""Generated traffic: always the same, well formed, with the sharing its story promises."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.workload.generators import find_generator, generate, generators
from simkv.workload.generators.params import Param
from simkv.workload.workload import OUTPUT_SEED, Workload, tokens_of
from tests.generators import ideal

NAMES = [g.name for g in generators()]
SMALL: dict[str, Any] = {"requests": 250}


def digest(w: Workload) -> str:
    h = hashlib.sha256()
    for name in ("arrive", "num_prompt", "num_output", "first_run", "runs", "after", "tenant", "session", "salt"):
        column = getattr(w, name)
        h.update(name.encode() + (b"" if column is None else np.ascontiguousarray(column).tobytes()))
    return h.hexdigest()[:16]


PINNED = {
    "shared_system_prompt": "5231a51ddfda31f3",
    "multi_turn_chat": "8d7d2d5ae018975f",
    "rag_static_context": "65c3ffc3fe16513d",
    "rag_shuffled": "cf6c00330b3b95a6",
    "few_shot_branching": "2f97c552b99c643d",
    "long_document_qa": "06b473e784244976",
    "open_ended": "5f22102b390be9b1",
    "agents_with_pauses": "075ccc9649688592",
    "growing_tenants": "668cd9925ec04bb8",
    "prompt_template": "a3d678e5b6d43e8d",
    "adapters_and_images": "32d5e4209c5a431a",
    "chat_and_batch_job": "59cdabc09e3b2e54",
}


def check(w: Workload, n: int) -> None:
    """What every reader of a workload relies on."""
    assert len(w) == len(w.num_prompt) == len(w.num_output) == n
    lengths = np.add.reduceat(w.runs["n"].astype(np.int64), w.first_run[:-1])
    assert np.array_equal(lengths, w.num_prompt.astype(np.int64) + w.num_output)
    assert (w.num_prompt >= 1).all()
    assert (w.num_output >= 1).all()
    assert (w.runs["n"] > 0).all()
    assert (w.runs["start"] >= 0).all()
    assert (w.runs["seed"] >= 0).all()
    assert (w.runs["seed"] < OUTPUT_SEED + n).all()
    assert (w.arrive >= 0).all()
    open_loop = w.arrive if w.after is None else w.arrive[w.after < 0]
    assert (np.diff(open_loop) >= 0).all()
    if w.after is not None:
        assert (w.after < np.arange(n)).all()
    assert w.tenant is not None
    assert w.session is not None
    assert w.tenant.max() < len(w.tenants)
    assert w.session.max() < len(w.sessions)
    assert not w.arrive.flags.writeable


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "diurnal", "closed loop"])
def test_well_formed(name: str, arrivals: str) -> None:
    check(generate(name, seed=3, requests=500, arrivals=arrivals), 500)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_on_every_machine(name: str) -> None:
    w = generate(name, seed=7, requests=3000)
    assert digest(w) == digest(generate(name, seed=7, requests=3000))
    assert digest(w) != digest(generate(name, seed=8, requests=3000))
    assert digest(w) == PINNED[name]


@settings(max_examples=40)
@given(st.sampled_from(NAMES), st.integers(0, 2**63 - 1), st.integers(1, 60), st.data())
def test_any_allowed_parameters(name: str, seed: int, n: int, data: st.DataObject) -> None:
    def value(p: Param) -> Any:
        if p.choices:
            return data.draw(st.sampled_from(p.choices), label=p.name)
        high = min(p.high, 3000)
        kind = st.integers(int(p.low), int(high)) if isinstance(p.default, int) else st.floats(p.low, high)
        return data.draw(kind, label=p.name)

    params = {p.name: value(p) for p in find_generator(name).params if p.name != "requests"}
    for smaller, larger in (("tenants_at_start", "tenants"), ("passages", "library")):
        if larger in params and smaller in params:
            params[larger] = max(params[larger], params[smaller])
    check(generate(name, seed=seed, requests=n, **params), n)


@pytest.mark.parametrize("name", NAMES)
def test_changing_the_rate_redraws_nothing_else(name: str) -> None:
    slow, fast = (generate(name, seed=1, requests=400, rate=rate, arrivals="poisson") for rate in (0.001, 0.002))
    assert np.array_equal(np.sort(slow.num_prompt), np.sort(fast.num_prompt))
    assert np.array_equal(np.sort(slow.num_output), np.sort(fast.num_output))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("rag_static_context", 0.88, 0.94),
        ("long_document_qa", 0.80, 0.97),
        ("open_ended", 0.0, 0.05),
        ("shared_system_prompt", 0.85, 0.95),
        ("multi_turn_chat", 0.55, 0.95),
        ("agents_with_pauses", 0.85, 0.99),
        ("few_shot_branching", 0.70, 0.97),
    ],
)
def test_sharing_as_promised(name: str, low: float, high: float) -> None:
    """Of an infinite cache; the ranges for RAG, documents and open-ended work are the published claims."""
    assert low <= ideal.hit_rate(generate(name, **SMALL)) <= high


def test_questions_after_the_first_find_the_document() -> None:
    w = generate("long_document_qa", requests=200, document_tokens=8000, document_cv=0.0, open_documents=2)
    hits = ideal.hit_tokens(w)
    document = w.runs["seed"][w.first_run[:-1] + 1]
    first = np.zeros(len(w), np.bool_)
    first[np.unique(document, return_index=True)[1]] = True
    rate = hits[~first].sum() / w.num_prompt[~first].sum()
    assert 0.92 <= rate <= 1.0
    assert (hits[first] <= 208).all()


def test_order_of_passages_decides() -> None:
    rates = {order: ideal.hit_rate(generate("rag_shuffled", requests=200, library=20, order=order)) for order in ("shuffled", "sorted")}
    assert rates["shuffled"] < 0.35
    assert rates["sorted"] > rates["shuffled"] + 0.1
    w = generate("rag_shuffled", requests=200, library=20, length_cv=0.0)
    seeds = [w.runs["seed"][w.first_run[i] + 1 : w.first_run[i] + 9] for i in range(len(w))]
    assert all(len(set(s.tolist())) == 8 for s in seeds)


def test_a_turn_contains_all_turns_and_answers_before() -> None:
    w = generate("multi_turn_chat", requests=120, arrivals="closed loop", users=5)
    assert w.session is not None
    assert w.after is not None
    latest: dict[int, int] = {}
    followed = 0
    for i in range(len(w)):
        said, session = tokens_of(w, i), int(w.session[i])
        if session in latest:
            before = tokens_of(w, latest[session])
            assert np.array_equal(said[: len(before)], before)
            assert w.num_prompt[i] > len(before)
            assert w.after[i] == latest[session]
            followed += 1
        latest[session] = i
    assert followed > 60


def test_pauses_of_agents_have_two_scales() -> None:
    w = generate("agents_with_pauses", requests=5000, long_share=0.1)
    assert w.after is not None
    pauses = w.arrive[w.after >= 0]
    assert np.median(pauses) < 5
    assert 0.02 < (pauses > 60).mean() < 0.1


def test_fixed_times_need_no_chain() -> None:
    w = generate("multi_turn_chat", requests=300, pacing="fixed times")
    assert w.after is None
    assert (np.diff(w.arrive) >= 0).all()


def test_the_working_set_grows() -> None:
    w = generate("growing_tenants", requests=4000)
    assert w.tenant is not None
    seen = [len(set(w.tenant[low : low + 400].tolist())) for low in range(0, 4000, 400)]
    assert seen[0] < 40
    assert seen[-1] > 120
    assert seen == sorted(seen)


def test_lengths_are_clamped() -> None:
    w = generate("open_ended", requests=20_000, length_cv=3.0, prompt_tokens=100, template_tokens=0)
    assert w.num_prompt.max() <= 2000
    assert w.num_prompt.min() >= 1
    fixed = generate("open_ended", requests=100, length_cv=0.0)
    assert set(fixed.num_prompt.tolist()) == {520}
    mean = generate("open_ended", requests=20_000, length_cv=0.6, template_tokens=0).num_prompt.mean()
    assert mean == pytest.approx(500, rel=0.03)


def test_parameters_are_checked() -> None:
    for params, said in (
        ({"rate": -1}, r"rate=-1: allowed is a number from 0\.001"),
        ({"requests": 1.5}, "requests=1.5"),
        ({"requests": 0}, "requests=0"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"arrivals": "magic"}, "poisson, gamma, diurnal, closed loop"),
        ({"colour": 1}, "a parameter of open_ended"),
        ({"salts": "per planet"}, "salts=per planet"),
    ):
        with pytest.raises(SettingsError, match=said):
            generate("open_ended", **params)
    with pytest.raises(SettingsError, match=r"Did you mean open_ended\?"):
        generate("open_end")
    with pytest.raises(SettingsError, match="seed=-1"):
        generate("open_ended", seed=-1)
    with pytest.raises(SettingsError, match="at most the library's 4 passages"):
        generate("rag_shuffled", library=4)
    assert generate("open_ended", requests=3, arrivals="closed_loop", salts=False).after is not None


@pytest.mark.parametrize("name", NAMES)
def test_every_generator_explains_itself(name: str) -> None:
    g = find_generator(name)
    assert len(g.story) > 60
    assert all(p.help for p in g.params)
    assert len({p.name for p in g.params}) == len(g.params)
    assert all(p.check(p.default) == p.default for p in g.params)
    assert generate(name, requests=5).report.notes == (f"Generated: {name}, seed 0, requests=5.",)
