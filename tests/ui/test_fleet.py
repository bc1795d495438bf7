"""The fleet on Explore by AppTest, and what it draws from."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from simkv.diagnosis.ladder import Ladder
from simkv.diagnosis.locality import locality
from simkv.errors import SimkvError
from simkv.events.fleet_log import OPERATION_KINDS
from simkv.fleet.routing.rules import RULES
from simkv.metrics.fleet import absences, fleet_series
from simkv.replay_fleet import FleetRun
from simkv.settings import EngineSettings
from simkv.settings.fleet import FleetSettings, Operation
from simkv.ui import replaying
from simkv.ui.config import Config
from simkv.ui.fleet import broken, cards, form, ladder_bars, maps, operations, tables, view
from simkv.ui.fleet.shown import FleetShown
from simkv.ui.fleet.verdict import Story, verdict
from simkv.ui.pages import explore
from simkv.ui.run_store import Job, ProgressLike, store
from simkv.workload.generators import generate
from tests.ui.opened import open_app, param

SMALL = {"source": "Generator", "shared_system_prompt.requests": "60", "memory": "blocks", "num_gpu_blocks": "400", "replicas": "3"}
LATER = "deploy,at=30,startup_s=10;fail,at=90,replica=1,down_s=5,startup_s=5"
DEPLOY = "deploy,at=4,startup_s=2;fail,at=20,replica=1,startup_s=2,down_s=3"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(explore, "PATIENCE_S", 300.0)


def headline(app: AppTest) -> str:
    return str(next(h.value for h in app.subheader if "replicas behind" in h.value)).replace("\\", "")


def work(**fleet: object) -> FleetShown:
    params = {"requests": 150, "tenants": 8, "context_tokens": 600, "question_tokens": 50, "output_tokens": 30}
    config = Config(
        "generator",
        "growing_tenants",
        tuple(params.items()),
        settings=EngineSettings(num_gpu_blocks=400, max_num_seqs=8, max_num_batched_tokens=512),
        fleet=FleetSettings.from_mapping({"replicas": 3, **fleet}),
    )
    workload = generate("growing_tenants", **params)
    job = Job(config, lambda job: replaying.work(job, workload, config))
    job.run()
    assert job.error is None, job.error
    assert isinstance(job.result, FleetShown)
    return job.result


@pytest.fixture(scope="module")
def shown() -> FleetShown:
    return work()


@pytest.fixture(scope="module")
def deployed() -> FleetShown:
    return work(
        operations=operations.read_text("deploy,at=30,startup_s=10;fail,at=90,replica=1,down_s=5,startup_s=5;add,at=100,startup_s=4")
    )


def test_one_replica_is_as_ever() -> None:
    app = open_app(400, **{**SMALL, "replicas": "1", "ops": DEPLOY})
    assert any("of prompt tokens came from the cache" in h.value for h in app.subheader)
    assert "ops" not in app.query_params


def test_a_fleet_opens_with_what_routing_did() -> None:
    app = open_app(400, **SMALL)
    assert headline(app).startswith("3 replicas behind round-robin find ")
    labels = ["Hit rate, whole run", "Lost between replicas", "Busiest replica", "TTFT p95, whole run", "Decisions against locality"]
    assert [m.label for m in app.metric] == labels
    assert any("3 × 400 blocks" in c.value for c in app.caption)
    assert any("One after the other" in c.value for c in app.caption)
    assert not app.error


@pytest.mark.parametrize("tab", view.TABS)
def test_every_tab_draws(tab: str) -> None:
    app = open_app(400, **SMALL, fleet_tab=tab, ops=DEPLOY)
    assert not app.error, app.error[0].value


def test_one_click_to_a_replica_and_back() -> None:
    app = open_app(400, **SMALL)
    app.segmented_control(key="replica").set_value("2").run()
    assert not app.exception
    assert any("of prompt tokens came from the cache" in h.value for h in app.subheader)
    assert [m.label for m in app.metric][-1] == "Preemptions up to here"
    linked = open_app(400, **SMALL, replica="2", tab="Requests")
    assert [m.value for m in linked.metric] == [m.value for m in app.metric]
    app.segmented_control(key="replica").set_value("fleet").run()
    assert headline(app)


def test_many_replicas_have_a_list_instead_of_a_row() -> None:
    app = open_app(400, **{**SMALL, "replicas": "20", "replica": "17"})
    assert app.selectbox(key="replica").value == "17"
    app.selectbox(key="replica").set_value("fleet").run()
    assert headline(app).startswith("20 replicas behind")


def test_everything_is_in_the_address() -> None:
    app = open_app(400, **SMALL, router="random", routers="2", router_seed="5", ops=DEPLOY)
    job = next(j for j in store()._jobs.values() if j.config.fleet is not None)
    fleet = job.config.fleet
    assert fleet is not None
    assert (fleet.replicas, fleet.router, fleet.routers, fleet.seed) == (3, "random", 2, 5)
    assert [o.kind for o in fleet.operations] == ["deploy", "fail"]
    assert param(app, "ops") == DEPLOY
    next(b for b in app.button if b.label == "add").click().run()
    assert not app.exception
    assert param(app, "ops").startswith(DEPLOY + ";add,at=")
    next(b for b in app.button if b.label == "Remove").click().run()
    assert not app.exception
    assert param(app, "ops").startswith("fail,at=20")


@pytest.mark.parametrize("ops", ["deploy", "explode,at=3", "fail,at=1", "fail,at=1,replica=9", "deploy,at=x", "<img src=x>,at=3"])
def test_an_operation_that_cannot_be_is_a_sentence_or_the_default(ops: str) -> None:
    app = open_app(400, **SMALL, ops=ops)
    if ops == "deploy":
        assert not app.error
        return
    assert len(app.error) == 1
    assert "<img" not in app.error[0].value.replace("\\<img", "")
    away = [b for b in app.button if b.label == "Remove what cannot be read"]
    if away:
        away[0].click().run()
        assert not app.exception
        assert not app.error


def test_what_an_engine_refuses_is_a_sentence() -> None:
    app = open_app(400, **{**SMALL, "num_gpu_blocks": "3"})
    assert len(app.error) == 1
    assert not app.metric


def test_no_content_and_a_source_without_requests() -> None:
    app = open_app(400, source="Trace", trace="Azure 2023 chat", limit="100", replicas="2")
    assert "no prompt can hit" in headline_of(app)
    assert app.metric[0].value == "no data"
    empty = open_app(400, source="Upload", replicas="2")
    assert "Choose a trace file" in empty.info[0].value


def headline_of(app: AppTest) -> str:
    return " ".join(str(h.value) for h in app.subheader).replace("\\", "")


def test_a_cancelled_fleet_is_shown_as_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Job.report

    def report(job: Job, progress: ProgressLike) -> bool:
        job.cancelled.set()
        return plain(job, progress)

    monkeypatch.setattr(Job, "report", report)
    app = open_app(400, source="Trace", trace="Mooncake conversation", limit="2000", replicas="4")
    assert "Partial result, stopped at" in headline_of(app)


def test_the_series_add_up_to_the_run(shown: FleetShown) -> None:
    series, run = shown.series, shown.run
    assert series.of["requests"].sum() == len(run.decisions) == 150
    assert series.of["requests"].sum(axis=1).tolist() == np.bincount(run.placed, minlength=3).tolist()
    computed = np.nansum(series.of["prefill_tokens_per_s"]) * series.bin_s
    assert computed == pytest.approx(sum(int(r.steps["prefill"].sum()) for r in run.replicas))
    assert np.nanmax(series.of["usage"]) <= 1
    assert np.nanmin(series.of["hit_rate"]) >= 0
    assert np.nanmax(series.of["ttft_p95"]) == pytest.approx(np.nanmax(run.requests["first_token"] - run.requests["arrive"]))
    assert fleet_series(run, 7).of["running"].shape == (3, 7)


def test_absences_follow_the_operations(deployed: FleetShown) -> None:
    found = absences(deployed.run)
    assert {s.state for s in found} <= {"absent", "draining", "down"}
    new = [s for s in found if s.replica == 3]
    assert [(s.state, s.start) for s in new] == [("absent", 0.0), ("down", 100.0)]
    assert new[1].end == pytest.approx(104.0)
    failed = next(r for r in deployed.run.operations if OPERATION_KINDS[r["kind"]] == "failed")
    down = [s for s in found if s.replica == 1 and s.start >= float(failed["time"])]
    assert [s.state for s in down] == ["down", "down"]
    assert down[-1].end - down[0].start == pytest.approx(10.0)
    for s in found:
        assert s.end > s.start
    gone = deployed.series.of["running"][3][deployed.series.edges[1:] <= 100.0]
    assert np.isnan(gone).all()


def test_a_replica_shows_its_own_requests(shown: FleetShown) -> None:
    from simkv.ui.tabs import requests

    parts = [shown.replica(i) for i in range(3)]
    names = [name for p in parts for name in requests.columns(p)["request"]]
    assert sorted(names) == sorted(shown.run.workload.id(i) for i in range(150))
    assert len({p.digest for p in parts}) == 3
    assert all(p.ceiling >= p.story.hit_rate for p in parts)
    assert shown.replica(1) is parts[1]


def test_decisions_are_judged_by_what_the_caches_held(shown: FleetShown) -> None:
    d = shown.run.decisions.copy()
    d["cached"], d["best_cached"], d["best_worker"] = 100, 100, d["worker"]
    d["matched"], d["total"] = 300, 600
    d["best_cached"][[5, 9]], d["best_worker"][[5, 9]] = (400, 700), 2
    d["cached"][20] = d["best_cached"][20] = -1
    found = locality(dataclasses.replace(shown.run, decisions=d))
    assert found.rows.tolist() == [9, 5]
    assert found.lost.tolist() == [600, 300]
    assert (found.known, found.tokens) == (149, 900)
    assert found.believed[0] == 0.5
    assert found.held[0] == 100 / shown.run.workload.num_prompt[0]
    assert np.isnan(found.held[20])
    columns = broken.columns(dataclasses.replace(shown.run, decisions=d), found, 1)
    assert columns["lost"] == [600]
    assert columns["best"] == [2]


def test_scores_name_the_chosen_and_the_better_replica(shown: FleetShown) -> None:
    d, scores = shown.run.decisions.copy(), shown.run.scores.copy()
    d["best_worker"][4] = (d["worker"][4] + 1) % 3
    scores[4] = (1.0, np.nan, 2.0)
    table = broken.scores(dataclasses.replace(shown.run, decisions=d, scores=scores), 4)
    assert table["score"] == [1.0, None, 2.0]
    assert sorted(table[""]) == ["", "held most", "sent here"]


@pytest.mark.parametrize("which", ["shown", "deployed"])
def test_the_maps_say_what_the_browser_needs(which: str, request: pytest.FixtureRequest) -> None:
    fleet: FleetShown = request.getfixturevalue(which)
    for blob in (maps._kept(fleet, maps.OVER_TIME), maps.groups_blob(fleet), *maps.side_by_side([fleet, fleet], "g")):
        length = int(np.frombuffer(blob, "<u4", 1)[0])
        meta = json.loads(blob[4 : 4 + length])
        data = np.frombuffer(blob, "<f4", offset=4 + length + -length % 4)
        assert len(data) == len(meta["measures"]) * len(meta["rows"]) * meta["columns"]
        assert all(m["high"] > m["low"] for m in meta["measures"])


def test_tables_and_exports(deployed: FleetShown) -> None:
    columns = tables.replica_columns(deployed)
    assert columns["replica"] == [0, 1, 2, 3]
    assert sum(columns["requests"]) == 150
    lines = view.replicas_csv(deployed).decode().splitlines()
    assert len(lines) == 5
    told = json.loads(view.run_json(deployed))
    assert told["fleet"]["replicas"] == 3
    assert told["ladder"]["ceiling"] >= told["ladder"]["routed"] >= told["ladder"]["kept"]
    assert len(cards.cards(deployed)) == 5


def test_operations_as_text() -> None:
    said = "deploy,at=600,warm=4,batch=2;fail,at=900.5,replica=3,down_s=60;add,at=10;remove,at=20,replica=0,drain=false"
    found = operations.read_text(said)
    assert [o.kind for o in found] == ["deploy", "fail", "add", "remove"]
    assert operations.read_text(operations.write_text(found)) == found
    assert operations.read_text("") == ()
    assert "at 0:15:00 replica 3 fails for 2 min" in operations.sentence(found[1])
    assert "not drained" not in operations.sentence(found[0])
    assert operations.sentence(Operation(kind="fail", replica=0)).endswith("for good")
    with pytest.raises(SimkvError):
        operations.read_text("deploy,600")


def ladder(ceiling: int, routed: int, kept: int, delivered: int, queries: int = 1000, has_content: bool = True) -> Ladder:
    counted = np.ones(1, np.bool_)
    return Ladder(16, counted, *(np.array([v]) for v in (queries, ceiling, routed, kept, delivered)), has_content=has_content)


@pytest.mark.parametrize(
    ("rungs", "above", "expected"),
    [
        ((374, 101, 101, 99), 1.0, "find 9.9 % of prompt tokens cached where one endless cache would find 37.4 %: 73 % of the"),
        ((374, 101, 101, 99), 1.0, "reuse is lost between replicas. Load is even."),
        ((374, 370, 370, 99), 1.3, "72 % of the reuse is lost on the replicas, to capacity and timing. Replica 2 computes 1.3× the mean."),
        ((374, 370, 99, 95), 2.0, "is lost to restarts. Replica 2 is a hot spot: it computes 2.0× the mean."),
        ((374, 372, 372, 370), 1.0, "nearly all that one endless cache would"),
        ((4, 0, 0, 0), 1.0, "share next to nothing"),
    ],
)  # fmt: skip
def test_the_headline_names_the_largest_loss(rungs: tuple[int, int, int, int], above: float, expected: str) -> None:
    assert expected in verdict(Story(16, "round-robin", ladder(*rungs), 2, above))


def test_the_headline_of_what_went_wrong() -> None:
    x = ladder(0, 0, 0, 0, 0)
    assert "No request was admitted" in verdict(Story(2, "random", x, 0, float("nan")))
    assert "Prefix caching is off" in verdict(Story(2, "random", ladder(500, 0, 0, 0), 0, 1.0, caching=False))
    said = verdict(Story(2, "random", ladder(5, 5, 5, 5, has_content=False), 0, 1.0, 3, 1, "partial", 5, 9, 60.0))
    assert said.startswith("Partial result, stopped at 0:01:00 with 5 of 9 requests finished.")
    assert "3 requests were sent again after a replica died, 1 given up." in said


def test_the_ladder_as_bars() -> None:
    html = ladder_bars.html(ladder(374, 101, 101, 99))
    assert html.count("class=rung") == 3
    assert "−27.3 points: routing" in html
    assert ladder_bars.html(ladder(374, 101, 101, 110)).count("+0.9 points") == 1
    assert "nothing lost: routing" in ladder_bars.html(ladder(374, 374, 374, 99))
    assert "does not say" in ladder_bars.html(ladder(1, 1, 1, 1, has_content=False))


def only_the_form() -> None:
    import streamlit as st

    from simkv.ui.fleet import form

    found = form.draw(100.0)
    st.session_state["found"] = found.to_mapping() if found is not None else None


def test_every_router_has_a_rule_in_a_line_and_a_form() -> None:
    from simkv.fleet.routing import policy_class, policy_names

    app = AppTest.from_function(only_the_form, default_timeout=180)
    app.query_params["replicas"] = "4"
    app.run()
    for name in policy_names():
        app.selectbox(key="router").set_value(name).run()
        assert not app.exception, (name, app.exception)
        assert app.session_state["found"]["router"] == name
        assert app.session_state["found"]["router_settings"] == {}, name
        policy = policy_class(name)
        line = form.rule(policy)
        assert line.endswith(f"({policy.product})")
        assert name in RULES
        assert "\n" not in line
        assert all(f.metadata["help"] for f in form.described(policy))


def test_a_setting_of_a_router_is_taken_over() -> None:
    app = AppTest.from_function(only_the_form, default_timeout=180)
    for name, value in {"replicas": "4", "router": "sglang-cache-aware", "router.sglang-cache-aware.cache_threshold": "0.55"}.items():
        app.query_params[name] = value
    app.run()
    assert app.session_state["found"]["router_settings"] == {"cache_threshold": 0.55}
    app.number_input(key="replicas").set_value(1).run()
    assert app.session_state["found"] is None


def test_a_run_of_a_fleet_counts_its_memory(shown: FleetShown) -> None:
    assert isinstance(shown.run, FleetRun)
    assert shown.nbytes > sum(r.turns.rows.nbytes + r.turns.ticks.nbytes for r in shown.run.replicas)
