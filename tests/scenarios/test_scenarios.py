"""Every scenario is a test: its expectations hold, and every row of the decision table can be shown by comparing two settings."""

from __future__ import annotations

from functools import cache

import pytest

from simkv.comparison.choices import derived, read_text
from simkv.scenarios import Outcome, find_scenario, judge, play, scenario_names
from simkv.scenarios.address import changes_between
from simkv.settings import settings_from
from tests.scenarios.decisions import DECISIONS

NAMES = scenario_names()
FIGURE = {
    "system_prompt": "prefill_tokens",
    "few_shot": "prefill_tokens",
    "adapters_and_images": "hit_rate",
    "four_replicas": "imbalance",
    "memory_tight": "output_tokens_per_s",
}


@cache
def outcomes(name: str) -> tuple[Outcome, ...]:
    return tuple(play(find_scenario(name)))


@pytest.mark.parametrize("name", NAMES)
def test_what_ought_to_come_out_does(name: str) -> None:
    scenario = find_scenario(name)
    found = outcomes(name)
    assert [o.status for o in found] == ["complete"] * len(scenario.variants)
    assert [v.found for v in judge(scenario, found) if v.outcome != "holds"] == []


@pytest.mark.parametrize("name", NAMES)
def test_its_table_has_a_figure_everywhere(name: str) -> None:
    scenario = find_scenario(name)
    rows = {key: [o.figure(key) for o in outcomes(name)] for key in scenario.figures}
    assert [key for key, row in rows.items() if all(v is None for v in row)] == []


@pytest.mark.parametrize("name", NAMES)
def test_any_two_variants_can_be_compared_in_one_click(name: str) -> None:
    """The text on the card of side B leads from A's settings to exactly B's."""
    variants = find_scenario(name).variants
    for a in variants:
        for b in variants:
            text = changes_between(a.settings, b.settings)
            assert derived(a.settings, read_text(text))[0] == b.settings


@pytest.mark.parametrize("row", DECISIONS)
def test_every_decision_is_shown_by_two_settings(row: str) -> None:
    name, before, after = DECISIONS[row]
    scenario = find_scenario(name)
    a, b = scenario.variant(before), scenario.variant(after)
    assert a.traffic == b.traffic
    assert (a.settings, a.fleet) != (b.settings, b.fleet)
    told = {v.expected.figure.variant for v in judge(scenario, outcomes(name)) if v.expected.other is not None}
    told |= {v.expected.other.variant for v in judge(scenario, outcomes(name)) if v.expected.other is not None}
    assert {a.name, b.name} & told, "no expectation compares them"
    figures = {o.variant.name: o.figure(FIGURE[name]) for o in outcomes(name)}
    assert figures[a.name] != figures[b.name]


def test_the_stories_are_for_people() -> None:
    for name in NAMES:
        scenario = find_scenario(name)
        assert 150 < len(scenario.story) < 900
        assert len(scenario.title) < 60
        assert len(scenario.variants) >= 2
        assert len(scenario.expected) >= 3
        assert all(e.says.endswith(".") for e in scenario.expected)


def test_settings_come_with_the_traffic() -> None:
    from simkv.engine.engines import merge
    from simkv.scenarios.traffic import recorded

    variant = find_scenario("few_shot").variant("sglang radix-tree")
    workload = recorded(variant)
    assert merge(settings_from({"engine": "sglang"}), workload) == variant.settings
