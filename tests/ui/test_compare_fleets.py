"""Compare with fleets by AppTest, and what it draws from."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from simkv.comparison.fleets import FleetComparison, elsewhere
from simkv.errors import SimkvError
from simkv.settings import EngineSettings
from simkv.settings.fleet import FleetSettings, Operation
from simkv.ui import navigation, replaying
from simkv.ui.compare import fleet_result, fleet_sides
from simkv.ui.config import Config
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.pages import compare as page
from simkv.ui.run_store import Job
from simkv.workload.generators import generate
from tests.ui.opened import open_page, read

SMALL = {"source": "Generator", "shared_system_prompt.requests": "60", "memory": "blocks", "num_gpu_blocks": "400"}
PARAMS = {"requests": 200, "tenants": 8, "context_tokens": 600, "question_tokens": 50, "output_tokens": 30}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(page, "PATIENCE_S", 300.0)


def captions(app: AppTest) -> list[str]:
    return [str(c.value).replace("\\", "") for c in app.caption]


def fleet(**values: object) -> FleetShown:
    config = Config(
        "generator",
        "growing_tenants",
        tuple(PARAMS.items()),
        settings=EngineSettings(num_gpu_blocks=400, max_num_seqs=8, max_num_batched_tokens=512),
        fleet=FleetSettings.from_mapping(values),
    )
    workload = generate("growing_tenants", **PARAMS)
    job = Job(config, lambda job: replaying.work(job, workload, config))
    job.run()
    assert job.error is None, job.error
    assert isinstance(job.result, FleetShown)
    return job.result


@pytest.fixture(scope="module")
def shown() -> list[FleetShown]:
    """Round robin on three replicas, the same by content, and one replica."""
    return [fleet(replicas=3), fleet(replicas=3, router="sglang-cache-aware"), fleet(replicas=1)]


@pytest.fixture(scope="module")
def found(shown: list[FleetShown]) -> FleetComparison:
    return fleet_result.comparison([("A", "A"), ("B", "router=sglang-cache-aware"), ("C", "replicas=1")], shown)


def test_two_routers_beside_each_other() -> None:
    app = open_page("compare", 400, **SMALL, replicas="3", b="router=least-load", c="router=sglang-cache-aware,router.cache_threshold=0.5")
    said = read(app)
    assert "of prompt tokens cached" in said
    assert "Its busiest replica computes" in said
    assert "router = sglang-cache-aware, router.cache_threshold = 0.5" in said
    assert any("3 replicas behind least-load" in c for c in captions(app))
    assert any("is explained for single replicas" in c for c in captions(app))
    for tab in fleet_result.TABS:
        app.session_state["compare_fleet_tab"] = tab
        app.run()
        assert not app.exception, (tab, app.exception)


def test_one_replica_against_several_and_another_engine() -> None:
    app = open_page("compare", 400, **SMALL, b="replicas=3,router=random", c="num_gpu_blocks=4000")
    assert any(c.startswith("1 replica; vLLM") for c in captions(app))
    assert any("3 replicas behind random" in c for c in captions(app))
    assert not app.error


def test_a_fleet_opens_against_another_router() -> None:
    app = open_page("compare", 400, **SMALL, replicas="2")
    value = app.query_params["b"]
    assert (value if isinstance(value, str) else value[0]) == "router=sglang-cache-aware"
    assert ":orange-badge[**B**]" in read(app)


@pytest.mark.parametrize("text", ["router=none-such", "router.cache_threshold=0.5", "replicas=0", "router=sglang-cache-aware,router.x=1"])
def test_what_no_fleet_can_be_is_a_sentence(text: str) -> None:
    app = open_page("compare", 400, **SMALL, replicas="2", b=text)
    assert str(app.error[0].value).startswith("B")


def test_the_answer_is_about_both_axes(found: FleetComparison) -> None:
    said = found.sentence(1)
    assert said.startswith("finds ")
    assert "points between replicas" in said
    assert "Its busiest replica computes" in said
    rows = {row.metric.key: row for row in found.rows}
    hit, lost = rows["hit_rate"].values, [rows[k].values for k in ("lost_routing", "lost_engines")]
    ceiling = [h + a + b for h, a, b in zip(hit, *lost, strict=True)]  # type: ignore[operator]
    assert ceiling == pytest.approx([ceiling[0]] * 3, abs=0.02)
    assert rows["lost_routing"].values[2] == 0
    assert "lost_restarts" not in rows
    assert rows["busiest"].verdict(1) in ("better", "worse", "same")
    assert found.sentence(2)


def test_requests_that_found_more_or_less(found: FleetComparison) -> None:
    a, b, _ = found.sides
    columns = elsewhere(a, b, 10)
    assert len(columns["request"]) == 10
    ids = [a.run.workload.id(i) for i in range(200)]
    for k, name in enumerate(columns["request"]):
        i = ids.index(name)
        assert columns["difference"][k] == int(b.ladder.of_delivered[i] - a.ladder.of_delivered[i]) != 0
        assert columns["A on replica"][k] == a.run.placed[i]
    sizes = [abs(v) for v in columns["difference"]]
    assert sizes == sorted(sizes, reverse=True)
    assert elsewhere(a, a)["request"] == []


def test_tables_of_all_sides(found: FleetComparison, shown: list[FleetShown]) -> None:
    per = fleet_result.per_replica(found, shown)
    assert per["rank"] == [1, 2, 3]
    assert per["A computed"] == sorted(per["A computed"], reverse=True)
    assert per["C replica"] == [0, None, None]
    groups = fleet_result.groups(found, shown)
    assert max(groups["A on replicas"]) == 3
    assert set(groups["C on replicas"]) == {1}
    settings = fleet_result.settings(found)
    assert "fleet: router" in settings["setting"]
    assert b'"answer"' in fleet_result.as_json(found)


def test_what_a_text_says_of_the_fleet() -> None:
    assert fleet_sides.split(None, ["block_size=32", ""]) == (["block_size=32", ""], [None, None, None])
    base = FleetSettings(replicas=4, router="sglang-cache-aware", router_settings={"cache_threshold": 0.7})
    plain, fleets = fleet_sides.split(base, ["block_size=32,replicas=8", "router=random", "router.balance_abs_threshold=3"])
    assert plain == ["block_size=32", "", ""]
    assert fleets[0] is base
    b, c, d = fleets[1:]
    assert b is not None
    assert c is not None
    assert d is not None
    assert (b.replicas, b.router, dict(b.router_settings)) == (8, "sglang-cache-aware", {"cache_threshold": 0.7})
    assert (c.router, dict(c.router_settings)) == ("random", {})
    assert dict(d.router_settings) == {"cache_threshold": 0.7, "balance_abs_threshold": 3}
    with pytest.raises(SimkvError, match="B: "):
        fleet_sides.split(base, ["replicas=x"])


def test_a_link_to_explore_says_the_whole_fleet() -> None:
    operations = (Operation(kind="fail", at=60.0, replica=1, down_s=30.0),)
    some = FleetSettings(
        replicas=4, router="sglang-cache-aware", router_settings={"cache_threshold": 0.7}, routers=2, seed=3, operations=operations
    )
    assert navigation.fleet_values(some) == {
        "replicas": "4",
        "router": "sglang-cache-aware",
        "routers": "2",
        "router_seed": "3",
        "router.sglang-cache-aware.cache_threshold": "0.7",
        "ops": "fail,at=60,replica=1,down_s=30",
    }
    assert navigation.fleet_values(None) == navigation.fleet_values(FleetSettings()) == {}
