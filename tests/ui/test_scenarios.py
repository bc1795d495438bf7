"""The page Scenarios by AppTest, and the addresses behind its buttons."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from simkv.comparison.choices import derived, read_text
from simkv.scenarios import find_scenario, play, scenario_names
from simkv.scenarios.curves import by_replica, hit_rate_over_time, last_admission, ttft_over_time
from simkv.scenarios.load import scenario_from
from simkv.scenarios.traffic import requests_of
from simkv.ui import sources
from simkv.ui.compare import fleet_sides
from simkv.ui.pages import scenarios as page
from simkv.ui.scenarios import addresses, result
from simkv.ui.scenarios.jobs import Jobs, jobs
from tests.scenarios.decisions import DECISIONS
from tests.ui.opened import open_page, read

SMALL: dict[str, Any] = {
    "title": "A <b>small</b> one",
    "story": 'Somebody says: "<script>alert(1)</script> *bold*".',
    "shows": "Something.",
    "group": "Memory",
    "traffic": {"generator": "shared_system_prompt", "params": {"requests": 60}},
    "settings": {"num_gpu_blocks": 600},
    "variants": [{"name": "<i>one</i>", "about": "It."}, {"name": "two", "about": "More.", "settings": {"num_gpu_blocks": 900}}],
    "expected": [
        {"says": "It is so.", "of": "two", "figure": "hit_rate", "between": [0, 1]},
        {"says": "It is not.", "of": "two", "figure": "hit_rate", "equals": 2},
        {"says": "Who knows.", "of": "two", "figure": "host_tokens", "equals": 0},
    ],
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(page, "PATIENCE_S", 400.0)


def test_the_gallery_has_a_card_for_every_scenario() -> None:
    app = open_page("scenarios", 500)
    said = read(app)
    for name in scenario_names():
        assert find_scenario(name).title in said
    assert len([b for b in app.button if b.label == "Open"]) == len(scenario_names())
    app.button(key="open.shorter_than_a_block").click().run()
    assert app.query_params["scenario"] in ("shorter_than_a_block", ["shorter_than_a_block"])
    assert "no timestamp, no id, and still nothing hits" in read(app)
    assert [b.label for b in app.button] == ["All scenarios", "Run"]


def test_it_runs_and_says_what_came_out() -> None:
    app = open_page("scenarios", 500, scenario="shorter_than_a_block")
    next(b for b in app.button if b.label == "Run").click().run()
    assert not app.exception, app.exception
    said = read(app)
    assert "3 of 3 expectations hold" in said
    assert "Hit rate 0.0 % (blocks of 1,072); expected 0.0 %" in said
    assert [b.label for b in app.button] == ["All scenarios"]
    app.button[0].click().run()
    assert "replayed: 3 of 3 expectations hold" in "\n".join(str(c.value) for c in app.caption)


def test_an_unknown_scenario_is_a_sentence_with_a_way_back() -> None:
    app = open_page("scenarios", 500, scenario="<b>nothing</b>")
    assert "there is no scenario" in app.error[0].value
    app.button[0].click().run()
    assert not app.error


def test_nothing_from_a_file_is_html() -> None:
    scenario = scenario_from(SMALL, "small", "small.toml")
    job = Jobs().start(scenario)
    assert job.done.wait(400)
    assert job.error is None
    assert [v.outcome for v in job.verdicts] == ["holds", "does not hold", "not known"]
    assert job.share == 1.0
    table = result.table(scenario, job.outcomes)
    assert "<i>one" not in table
    assert "&lt;i&gt;one&lt;/i&gt;" in table
    assert result.replicas(job.outcomes) == ""


def test_stopping_keeps_finished_variants() -> None:
    slow = {**SMALL, "traffic": {"generator": "shared_system_prompt", "params": {"requests": 60_000}}}
    scenario = scenario_from(slow, "slow", "slow.toml")
    one = Jobs().start(scenario)
    one.cancelled.set()
    assert one.done.wait(400)
    assert one.error is None
    assert len(one.outcomes) < 2
    assert one.sentence == "Stopping"


def test_a_changed_file_is_another_question() -> None:
    kept = jobs()
    scenario = scenario_from(SMALL, "small", "small.toml")
    job = kept.start(scenario)
    assert kept.start(scenario) is job
    assert kept.get(scenario) is job
    assert kept.get(scenario_from({**SMALL, "title": "Another"}, "small", "small.toml")) is None
    assert job.done.wait(400)


def left_column() -> None:
    import streamlit as st

    from simkv.ui import sidebar

    with st.sidebar:
        st.session_state["chosen"] = sidebar.draw().config


@pytest.mark.parametrize("name", scenario_names())
def test_explore_opens_with_exactly_the_variant(name: str) -> None:
    """The left column, opened by the address, asks for the same requests, settings and fleet."""
    scenario = find_scenario(name)
    opened = [(v, addresses.explore(v)) for v in scenario.variants]
    assert sum(a is not None for _, a in opened) >= 2, "hardly a variant can be opened"
    for variant, address in opened[:3]:
        if address is None:
            continue
        app = AppTest.from_function(left_column, default_timeout=120)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        assert not app.exception, app.exception
        config = app.session_state["chosen"]
        told = {k: v for k, v in config.settings.changed().items() if k in variant.settings.changed() or k != "gpu_memory_utilization"}
        assert (config.settings.engine, told) == (variant.settings.engine, variant.settings.changed())
        assert config.fleet == variant.fleet
        mine, theirs = requests_of(variant.traffic), sources.asked(config)
        for column in ("arrive", "num_prompt", "num_output", "runs", "salt", "lora", "after"):
            a, b = getattr(mine, column), getattr(theirs, column)
            assert (a is None and b is None) or np.array_equal(a, b), column


def test_compare_opens_with_exactly_the_two() -> None:
    """B's text, read as Compare reads it, leads from A to B; the fleets' too."""
    pairs = 0
    for name in scenario_names():
        variants = find_scenario(name).variants
        for a in variants:
            for b in variants:
                address = addresses.compare(a, b)
                if address is None:
                    continue
                (plain,), fleets = fleet_sides.split(a.fleet, [address["b"]])
                assert derived(a.settings, read_text(plain))[0] == b.settings
                assert fleets == [a.fleet, b.fleet]
                pairs += a is not b
    assert pairs > 60
    prompt = find_scenario("nothing_hits").variants
    assert addresses.compare(prompt[0], prompt[1]) is None, "other requests are another question"
    deploy = find_scenario("rolling_deploy").variants
    assert addresses.compare(deploy[0], deploy[1]) is None, "so are other operations: Compare takes A's"


@pytest.mark.parametrize("row", DECISIONS)
def test_every_decision_is_one_click_away(row: str) -> None:
    name, before, after = DECISIONS[row]
    scenario = find_scenario(name)
    assert addresses.compare(scenario.variant(before), scenario.variant(after)) is not None


def test_curves_add_up() -> None:
    values = {**SMALL, "variants": [{"name": "a", "about": "a"}, {"name": "b", "about": "b", "fleet": {"replicas": 2}}]}
    values["expected"] = [{"says": "s", "of": "a", "figure": "preemptions", "equals": 0}]
    one, fleet = play(scenario_from(values, "x", "x.toml"))
    for outcome in (one, fleet):
        end = last_admission(outcome)
        time, rate = hit_rate_over_time(outcome, end, bins=1)
        assert time.tolist() == [pytest.approx(end / 2)]
        assert rate[0] == pytest.approx(outcome.figure("hit_rate"))
        _, late = ttft_over_time(outcome, end + 1, bins=1)
        assert late[0] == pytest.approx(outcome.figure("ttft_p95_s"))
        _, many = hit_rate_over_time(outcome, end, bins=500)
        assert np.isnan(many).any()
        assert np.nanmax(many) <= 1
    assert by_replica(one) == []
    assert [share for _, share, _, _ in by_replica(fleet)] == [0.5, 0.5]
    assert len(re.findall("<td>", result.replicas([one, fleet]))) == 4
