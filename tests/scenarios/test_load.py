"""A scenario's file that cannot be used ends in one sentence: the file, the key, the value, what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simkv.errors import InputError
from simkv.scenarios import Where, judge, play, read_scenario
from simkv.scenarios.load import MOST_BYTES, scenario_from

GOOD = """
title = "A title"
story = "A story."
shows = "Something."
group = "Memory"

[traffic]
generator = "open_ended"
params = { requests = 20 }

[[variants]]
name = "one"
about = "As it is."

[[variants]]
name = "other"
about = "Smaller."
settings = { num_gpu_blocks = 400 }

[[expected]]
says = "Little is found."
of = "one"
figure = "hit_rate"
between = [0, 0.2]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_small_file(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path, GOOD))
    assert scenario.name == "mine"
    assert [v.settings.to_mapping()["num_gpu_blocks"] for v in scenario.variants] == [None, 400]
    (verdict,) = judge(scenario, play(scenario))
    assert verdict.outcome == "holds"
    assert verdict.found.startswith("Hit rate ")
    assert verdict.found.endswith("(one); expected 0.0 % to 20.0 %")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "A title"', "", 'mine.toml, field "title": it is missing; expected a text'),
        ('title = "A title"', "title = 3", 'field "title": the value is 3; expected a text of 1 to 80 characters'),
        ('group = "Memory"', 'group = "Mine"', "field \"group\": the value is 'Mine'; expected one of The prompt, Memory"),
        ('shows = "Something."', 'shows = "a\\u0007b"', "expected printable characters"),
        ('title = "A title"', 'titel = "A title"\ntitle = "A title"', 'field "titel": there is no such key here'),
        ('generator = "open_ended"', 'generator = "__import__"', "field \"traffic.generator\": the value is '__import__'; expected one of"),
        (
            'generator = "open_ended"',
            'trace = "../../etc/passwd"',
            "field \"traffic.trace\": the value is '../../etc/passwd'; expected one of",
        ),
        ('generator = "open_ended"', 'generator = "open_ended"\ntrace = "ragpulse"', "it names both; expected either generator or trace"),
        (
            "params = { requests = 20 }",
            "params = { requests = -1 }",
            'field "traffic.params": requests=-1: allowed is a whole number from 1',
        ),
        ("params = { requests = 20 }", "params = 3", 'field "traffic.params": the value is 3; expected a table'),
        ("params = { requests = 20 }", "seed = 1.5", 'field "traffic.seed": the value is 1.5; expected a whole number'),
        ("params = { requests = 20 }", 'salts = "per planet"', "field \"traffic.salts\": the value is 'per planet'; expected one of keep"),
        ("num_gpu_blocks = 400", "num_gpu_blocks = 1", 'field "variants[2].settings": num_gpu_blocks=1: allowed is'),
        ("num_gpu_blocks = 400", "colour = 1", 'field "variants[2].settings": colour=1: allowed is a setting of vllm'),
        (
            "settings = { num_gpu_blocks = 400 }",
            "fleet = { replicas = 0 }",
            'field "variants[2].fleet": replicas=0: allowed is a whole number',
        ),
        (
            "settings = { num_gpu_blocks = 400 }",
            'fleet = { router = "os.system" }',
            'field "variants[2].fleet": router=os.system: allowed is round-robin',
        ),
        (
            "settings = { num_gpu_blocks = 400 }",
            "fleet = { router_settings = { colour = 1 } }",
            'field "variants[2].fleet": colour=1: allowed is a setting of',
        ),
        ("settings = { num_gpu_blocks = 400 }", 'fleet = { operations = [{ kind = "explode" }] }', "kind=explode: allowed is deploy"),
        ('name = "other"', 'name = "One"', "field \"variants[2].name\": the value is 'One'; expected a name that no other variant has"),
        ('of = "one"', 'of = "two"', "field \"expected[1].of\": the value is 'two'; expected one of one, other"),
        ('figure = "hit_rate"', 'figure = "speed"', "field \"expected[1].figure\": the value is 'speed'; expected one of hit_rate"),
        ("between = [0, 0.2]", "", "it has none; expected exactly one of between, equals"),
        ("between = [0, 0.2]", "between = [0, 1]\nequals = 0", "it has equals, between; expected exactly one"),
        ("between = [0, 0.2]", "between = [1, 0]", "expected two numbers, the smaller first"),
        ("between = [0, 0.2]", "between = [0, nan]", "expected a number"),
        ("between = [0, 0.2]", 'below = { of = "nobody" }', "field \"expected[1].below.of\": the value is 'nobody'"),
        (
            "between = [0, 0.2]",
            'equals = 0\nwhere = { part = "evening" }',
            "field \"expected[1].where.part\": the value is 'evening'; expected one of",
        ),
        ('figure = "hit_rate"', 'figure = "usage_mean"\nwhere = { part = "first half" }', "usage_mean is known of the whole run only"),
        ("[[expected]]", "[expected]", 'field "expected": the value is'),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(InputError) as problem:
        read_scenario(written(tmp_path, GOOD.replace(old, new, 1)))
    assert said in str(problem.value)
    assert str(problem.value).startswith("mine.toml")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.toml: it is no TOML"):
        read_scenario(written(tmp_path, "title = "))
    with pytest.raises(InputError, match="expected at most 200,000"):
        read_scenario(written(tmp_path, "#" * (MOST_BYTES + 1)))
    with pytest.raises(InputError, match="it cannot be read"):
        read_scenario(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is no TOML"):
        read_scenario(tmp_path / "bytes.toml")


def test_variants_are_the_base_with_changes() -> None:
    values: dict[str, Any] = {
        "title": "t",
        "story": "s",
        "shows": "s",
        "group": "Memory",
        "settings": {"num_gpu_blocks": 1000, "max_num_seqs": 8},
        "traffic": {"generator": "open_ended", "seed": 3, "params": {"requests": 30, "rate": 2.0}},
        "variants": [
            {"name": "a", "about": "a"},
            {"name": "b", "about": "b", "settings": {"engine": "sglang"}, "traffic": {"params": {"rate": 4.0}}},
            {"name": "c", "about": "c", "traffic": {"generator": "rag_shuffled"}},
        ],
        "expected": [{"says": "s", "of": "a", "figure": "preemptions", "equals": 0}],
    }
    a, b, c = scenario_from(values, "x", "x.toml").variants
    assert b.settings.to_mapping()["max_total_tokens"] == 16_000, "the same memory"
    assert b.settings.to_mapping()["max_running_requests"] == 8
    assert (b.traffic.params, b.traffic.seed) == ({"requests": 30, "rate": 4.0}, 3)
    assert (c.traffic.name, c.traffic.params, c.traffic.seed) == ("rag_shuffled", {}, 3), "another generator has other parameters"
    assert a.settings == c.settings


def test_figures_of_some_requests() -> None:
    values: dict[str, Any] = {
        "title": "t",
        "story": "s",
        "shows": "s",
        "group": "Memory",
        "traffic": {"generator": "chat_and_batch_job", "params": {"requests": 200, "job_share": 0.25}},
        "variants": [{"name": "a", "about": "a"}],
        "expected": [
            {"says": "s", "figure": "requests", "where": {"tenant": "batch job"}, "equals": 50},
            {"says": "s", "figure": "requests", "where": {"tenant": "chat"}, "equals": 150},
            {"says": "s", "figure": "requests", "where": {"part": "first half"}, "equals": 100},
            {"says": "s", "figure": "requests", "where": {"turn": "first"}, "equals": 2},
            {"says": "s", "figure": "hit_rate", "where": {"tenant": "batch job"}, "equals": 0},
            {"says": "s", "figure": "hit_rate", "where": {"tenant": "chat"}, "below": {"figure": "hit_rate"}},
            {"says": "s", "figure": "host_tokens", "equals": 0},
        ],
    }
    scenario = scenario_from(values, "x", "x.toml")
    (outcome,) = play(scenario)
    said = [v.outcome for v in judge(scenario, [outcome])]
    assert said == ["holds"] * 5 + ["does not hold", "not known"]
    late = outcome.figure("requests", Where(from_s=10.0))
    early = outcome.figure("requests", Where(to_s=10.0))
    assert late is not None
    assert early is not None
    assert late + early == 200
    assert late > 0 < early
    with pytest.raises(InputError, match="no request belongs to tenant nobody; expected one of chat, batch job"):
        outcome.figure("requests", Where(tenant="nobody"))


def test_figures_of_a_fleet() -> None:
    """Sums, shares and the rest are those of the traffic; a replica's part is what it served."""
    values: dict[str, Any] = {
        "title": "t",
        "story": "s",
        "shows": "s",
        "group": "Several replicas",
        "traffic": {"generator": "shared_system_prompt", "params": {"requests": 300, "rate": 10.0}},
        "fleet": {"replicas": 3},
        "variants": [
            {"name": "a", "about": "a"},
            {"name": "b", "about": "b", "fleet": {"operations": [{"kind": "deploy", "at": 10, "startup_s": 3, "warm": 4}]}},
        ],
        "expected": [
            {"says": "s", "of": "a", "figure": "requests", "where": {"replica": 0}, "equals": 100},
            {"says": "s", "of": "a", "figure": "busiest_share", "between": [0.3333, 0.3334]},
            {"says": "s", "of": "a", "figure": "imbalance", "between": [1, 1.3]},
            {"says": "s", "of": "a", "figure": "rerouted", "equals": 0},
            {"says": "s", "of": "b", "figure": "requests", "equals": 300},
            {"says": "s", "of": "b", "figure": "finished", "equals": 300},
            {"says": "s", "of": "b", "figure": "prefill_tokens", "above": {"of": "a"}},
        ],
    }
    scenario = scenario_from(values, "x", "x.toml")
    found = play(scenario)
    assert [(v.outcome, v.found) for v in judge(scenario, found) if v.outcome != "holds"] == []
    a = found[0]
    parts = [a.figure("cached_tokens", Where(replica=r)) for r in range(3)]
    assert None not in parts
    assert sum(p or 0 for p in parts) == a.figure("cached_tokens")


def test_stopping_keeps_what_is_finished(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path, GOOD.replace("requests = 20", "requests = 4000")))
    found = play(scenario, progress=lambda variant, _: variant.name == "one")
    assert [o.variant.name for o in found] == ["one"]
    assert [v.outcome for v in judge(scenario, found)] == ["holds"]
