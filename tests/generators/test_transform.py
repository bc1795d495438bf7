"""Workloads made from workloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import SettingsError
from simkv.workload.generators import generate
from simkv.workload.generators.params import SALTS
from simkv.workload.transform import SALT_MODES, limit, repeat, salt_mode, stretch, with_salts
from simkv.workload.workload import ABORT, ACTION, IMAGE, OUTPUT_SEED, RESET, RUN, Workload, tokens_of


def every_column() -> Workload:
    """Three requests that use everything a workload can carry; the last is chained and cites the first one's output."""
    runs = np.array([(5, 0, 8), (OUTPUT_SEED, 0, 2), (-1, 3, 4), (9, 0, 1), (5, 0, 8), (OUTPUT_SEED, 0, 2), (OUTPUT_SEED + 2, 0, 1)], RUN)
    return Workload(
        name="all",
        format="test",
        arrive=np.array([0.0, 1.0, 0.5]),
        num_prompt=np.array([8, 4, 10], np.int32),
        num_output=np.array([2, 1, 1], np.int32),
        first_run=np.array([0, 2, 4, 7]),
        runs=runs,
        tokens=np.arange(100, 108, dtype=np.int32),
        ids=["a", "b", "c"],
        salt=np.array([0, 1, 0], np.int32),
        salts=("", "s"),
        first_image=np.array([0, 1, 1, 1]),
        images=np.array([(0, 2, 3)], IMAGE),
        image_identifiers=("cat",),
        priority=np.array([1, 2, 3], np.int32),
        after=np.array([-1, -1, 0], np.int32),
        tenant=np.array([0, 1, -1], np.int32),
        tenants=("t", "u"),
        session=np.array([0, 1, 0], np.int32),
        sessions=("x", "y"),
        tie=np.array([0.0, 1.0, 2.0]),
        actions=np.array([(0.5, 1, ABORT), (2.0, -1, RESET)], ACTION),
    )


def test_salts() -> None:
    w = every_column()
    per_tenant = with_salts(w, "per tenant")
    assert per_tenant.salt is not None
    assert [per_tenant.salts[k] for k in per_tenant.salt] == ["t", "u", ""]
    per_session = with_salts(w, "session")
    assert per_session.salt is not None
    assert [per_session.salts[k] for k in per_session.salt] == ["x", "y", "x"]
    off = with_salts(w, "off")
    assert (off.salt, off.salts) == (None, ("",))
    assert with_salts(w, "keep") is w
    with pytest.raises(SettingsError, match=r"does not say which tenant .*; none of the bundled traces does, and every generator does"):
        with_salts(replace(w, tenant=None), "per tenant")
    with pytest.raises(SettingsError, match=r"does not say which session .*; of the bundled traces ragpulse, "):
        with_salts(replace(w, session=None), "per session")
    with pytest.raises(SettingsError, match="keep, off, per tenant, per session"):
        with_salts(w, "per continent")


@pytest.mark.parametrize("text", ["per tenant", "per-tenant", "per_tenant", "tenant", "Per Tenant"])
def test_one_spelling_of_salts(text: str) -> None:
    assert salt_mode(text) == "per tenant"
    assert generate("few_shot_branching", requests=5, salts=text.lower()).salt is not None
    assert set(SALTS.choices) < set(SALT_MODES)


def test_limit() -> None:
    w = limit(every_column(), 1)
    assert (len(w), w.id(0), len(w.runs), w.num_prompt.tolist()) == (1, "a", 2, [8])
    assert w.actions["op"].tolist() == [RESET]
    assert len(w.images) == 1
    assert limit(every_column(), 3) is not None
    assert "Only the first 1 of 3 requests." in w.report.notes
    with pytest.raises(SettingsError, match="limit=0"):
        limit(every_column(), 0)


def test_stretch_leaves_pauses_alone() -> None:
    w = stretch(every_column(), 4)
    assert w.arrive.tolist() == [0.0, 4.0, 0.5]
    assert w.actions["at"].tolist() == [2.0, 8.0]
    for bad in (0, -1, float("nan")):
        with pytest.raises(SettingsError, match="stretch"):
            stretch(w, bad)


def test_repeat_moves_everything() -> None:
    w = repeat(every_column(), 3)
    assert len(w) == 9
    assert w.arrive.tolist() == [0, 1, 0.5, 2, 3, 0.5, 4, 5, 0.5]
    assert [w.id(i) for i in (0, 3, 8)] == ["a", "a#2", "c#3"]
    assert w.after is not None
    assert w.after.tolist() == [-1, -1, 0, -1, -1, 3, -1, -1, 6]
    assert w.actions["at"].tolist() == [0.5, 2, 2.5, 4, 4.5, 6]
    assert w.actions["req"].tolist() == [1, -1, 4, -1, 7, -1]
    assert w.first_image is not None
    assert w.first_image.tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert w.session is not None
    assert [w.sessions[k] for k in w.session[3:6]] == ["x#2", "y#2", "x#2"]
    assert w.tenant is not None
    assert w.tenant.tolist() == [0, 1, -1] * 3
    seeds = w.runs["seed"].reshape(3, -1)
    assert seeds[:, 1].tolist() == seeds[:, 5].tolist() == [OUTPUT_SEED, OUTPUT_SEED + 3, OUTPUT_SEED + 6]
    assert len({*seeds[:, 0].tolist(), *seeds[:, 3].tolist()}) == 6
    texts = [tokens_of(w, i) for i in range(9)]
    assert [t[:4].tolist() for t in texts[1::3]] == [[103, 104, 105, 106], [211, 212, 213, 214], [319, 320, 321, 322]]
    for k in range(3):
        assert np.array_equal(texts[3 * k + 2][:10], texts[3 * k])


@settings(max_examples=30)
@given(st.sampled_from(["multi_turn_chat", "rag_shuffled", "growing_tenants"]), st.integers(2, 5), st.integers(0, 1000))
def test_copies_share_nothing_and_are_alike(name: str, times: int, seed: int) -> None:
    params: dict[str, Any] = {"requests": 40}
    w = generate(name, seed=seed, **params)
    r = repeat(w, times)
    n = len(w)
    copies = [r.runs["seed"][r.first_run[k * n] : r.first_run[(k + 1) * n]] for k in range(times)]
    contents = [set(c.tolist()) for c in copies]
    assert sum(map(len, contents)) == len(set().union(*contents))
    assert all(np.array_equal(np.unique(c, return_inverse=True)[1], np.unique(copies[0], return_inverse=True)[1]) for c in copies)
    assert np.array_equal(copies[0], w.runs["seed"])
    shared = r.runs["seed"][r.runs["seed"] < OUTPUT_SEED]
    assert shared.max() < OUTPUT_SEED
    assert (np.diff(r.arrive if r.after is None else r.arrive[r.after < 0]) >= 0).all()


def test_contents_near_the_limit_are_renumbered() -> None:
    w = every_column()
    runs = w.runs.copy()
    runs["seed"][runs["seed"] == 9] = OUTPUT_SEED - 1
    r = repeat(replace(w, runs=runs), 4)
    shared = r.runs["seed"][(r.runs["seed"] >= 0) & (r.runs["seed"] < OUTPUT_SEED)]
    assert len(set(shared.tolist())) == 8


def test_copies_must_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simkv.workload.transform.available_bytes", lambda: 100_000)
    assert len(repeat(every_column(), 3)) == 9
    with pytest.raises(SettingsError, match=r"copies=10000: allowed is at most \d+ of 3 requests\. 30,000 requests would need \d+\.\d GB"):
        repeat(every_column(), 10_000)
    monkeypatch.setattr("simkv.workload.transform.available_bytes", lambda: None)
    with pytest.raises(SettingsError, match=r"at most 33,333,333 of 3 requests\. A workload has at most 100,000,000 requests"):
        repeat(every_column(), 1 << 40)
    assert len(repeat(every_column(), 10_000)) == 30_000


def test_step_mode_stays_on_whole_steps() -> None:
    w = replace(every_column(), step_time={"mode": "step"}, arrive=np.array([0.0, 3.0, 1.0]))
    assert repeat(w, 2).arrive.tolist() == [0, 3, 1, 4, 7, 1]


def test_bad_times() -> None:
    assert repeat(every_column(), 1).name == "all"
    with pytest.raises(SettingsError, match="copies=0"):
        repeat(every_column(), 0)
    with pytest.raises(SettingsError, match="at most 1 copies with token ids up to 1,073,741,931"):
        repeat(replace(every_column(), tokens=np.arange(100, 108, dtype=np.int32) + 2**30), 2)
