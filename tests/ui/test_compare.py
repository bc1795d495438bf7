"""The page Compare by AppTest, and what it draws from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from simkv.comparison import Comparison, Side, choices, compare
from simkv.comparison.metrics import METRICS, Row
from simkv.settings import EngineSettings, SglangSettings
from simkv.ui import navigation, replaying
from simkv.ui.block_map.payload import with_meta
from simkv.ui.compare import charts, figures, maps, result
from simkv.ui.config import Config
from simkv.ui.pages import compare as page
from simkv.ui.run_store import Job, ProgressLike
from simkv.ui.shown import Shown
from simkv.workload.generators import generate
from simkv.workload.workload import Workload
from tests.ui.conftest import APP
from tests.ui.opened import open_page, param, read

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SMALL = {"source": "Generator", "shared_system_prompt.requests": "60", "memory": "blocks", "num_gpu_blocks": "400"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(page, "PATIENCE_S", 120.0)


def test_it_opens_already_compared() -> None:
    app = open_page("compare")
    said = read(app)
    assert "of prompt tokens cached" in said
    assert "They part after" in said
    assert not app.error
    assert param(app, "c") == "kv_cache_dtype=fp8"


def test_the_sides_of_the_address_are_shown() -> None:
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000", c="enable_prefix_caching=false,max_num_seqs=4", d="")
    said = read(app)
    assert "num_gpu_blocks = 4000" in said
    assert "enable_prefix_caching = false, max_num_seqs = 4" in said
    assert ":green-badge[**C**] **finds only 0.0 % of prompt tokens cached" in said
    assert "No difference: A and D make the same decisions" in said
    assert param(app, "b") == "num_gpu_blocks=4000"


def test_a_changed_setting_is_in_the_address_and_in_the_result() -> None:
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000")
    before = read(app)
    next(w for w in app.number_input if w.label == "num_gpu_blocks" and w.value == 4000).set_value(420).run()
    assert not app.exception
    assert param(app, "b") == "num_gpu_blocks=420"
    assert read(app) != before


def test_one_more_setting_and_one_less_side() -> None:
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000", c="max_num_seqs=4")
    next(w for w in app.multiselect).set_value(["num_gpu_blocks", "block_size"]).run()
    assert param(app, "b") == "num_gpu_blocks=4000"  # what is as in A is no difference
    next(w for w in app.number_input if w.label == "block_size").set_value(32).run()
    assert param(app, "b") == "num_gpu_blocks=4000,block_size=32"
    next(b for b in app.button if b.label == "Remove").click().run()
    assert not app.exception
    assert param(app, "b") == "max_num_seqs=4"
    assert "c" not in app.query_params
    next(b for b in app.button if b.label == "Add").click().run()
    assert param(app, "c") == ""
    assert "No difference: A and C" in read(app)


def test_another_engine_gets_the_same_memory() -> None:
    app = open_page("compare", **SMALL, b="max_num_active_seqs=4")
    next(w for w in app.selectbox if w.label == "engine" and w.key.startswith("side")).set_value("vllm-v0").run()
    assert not app.exception
    assert param(app, "b") == "engine=vllm-v0"
    captions = [str(c.value) for c in app.caption]
    assert any("vLLM V0 0.2.7, 6,400 KV tokens in blocks of 16" in c for c in captions)


@pytest.mark.parametrize("text", ["nonsense", "engine=tgi", "block_size=0", "no_such=3", "block_size=x", "<img src=x onerror=alert(1)>"])
def test_a_bad_address_is_a_sentence(text: str) -> None:
    app = open_page("compare", **SMALL, b=text)
    assert app.error
    assert "<img" not in "".join(str(e.value) for e in app.error).replace("\\<img", "")


def test_a_large_comparison_waits_for_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000")
    monkeypatch.setattr(replaying, "SMALL_S", 0.0)
    next(w for w in app.number_input if w.label == "num_gpu_blocks" and w.value == 4000).set_value(420).run()
    assert "press Compare" in "".join(str(c.value) for c in app.caption)
    next(b for b in app.button if b.label == "Compare").click().run()
    assert not app.exception
    assert "press Compare" not in "".join(str(c.value) for c in app.caption)


def test_what_an_engine_refuses_names_the_side_over_the_last_comparison() -> None:
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000")
    next(w for w in app.number_input if w.label == "num_gpu_blocks" and w.value == 4000).set_value(5).run()
    assert not app.exception
    assert str(app.error[0].value).startswith("B\\: max")
    assert "last good comparison" in "".join(str(c.value) for c in app.caption)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [("vllm/01_shared_system_prompt.input.json", "enable_prefix_caching=false"), ("sglang/01_*.workload.json", "disable_radix_cache=true")],
)
def test_a_recorded_file_is_compared_under_its_own_settings(pattern: str, other: str) -> None:
    """An upload with settings of its own, timed in steps or not: A is as recorded, B changes one thing."""
    file = next(GOLDEN.glob(pattern))
    app = open_page("compare", source="Upload", b=other)
    app.file_uploader(key="upload").set_value((file.name, file.read_bytes(), "application/json")).run()
    assert not app.exception
    assert not app.error, app.error[0].value
    assert "B computes again because it has no prefix cache" in read(app)


def test_cancel_stops_what_is_under_way_and_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first side waits for Cancel, so the page cannot be too late; the second one is never begun."""
    begun: list[str] = []
    plain = replaying.work

    def work(job: Job, workload: Workload, config: Config) -> Shown:
        begun.append(config.digest)
        assert job.cancelled.wait(60)
        return plain(job, workload, config)

    monkeypatch.setattr(page, "PATIENCE_S", 0.0)
    monkeypatch.setattr(replaying, "work", work)
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000")
    assert any(str(s.value) == "Replaying" for s in app.subheader)
    next(b for b in app.button if b.label == "Cancel").click().run()
    monkeypatch.setattr(page, "PATIENCE_S", 120.0)
    app.run()
    assert not app.exception
    assert "missing or partial" in str(app.warning[0].value)
    assert len(begun) == 1


@pytest.mark.parametrize("trace", ["Azure 2023 chat", "ShareGPT lengths", "LMCache tau-bench"])
def test_every_kind_of_trace(trace: str) -> None:
    app = open_page("compare", trace=trace, limit="100", b="max_num_seqs=8")
    assert not app.error
    for tab in result.TABS:
        app.session_state["compare_tab"] = tab
        app.run()
        assert not app.exception, (tab, app.exception)


def test_cancelled_and_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second side is stopped at its first report; "Go on" replays it to the end."""
    calls: list[int] = []
    plain = Job.report

    def report(job: Job, progress: ProgressLike) -> bool:
        calls.append(1)
        if job.config.settings.to_mapping()["num_gpu_blocks"] == 4000 and len(calls) < 1000:
            calls.extend([0] * 1000)
            job.cancelled.set()
        return plain(job, progress)

    monkeypatch.setattr(Job, "report", report)
    app = open_page("compare", **SMALL, b="num_gpu_blocks=4000")
    if not app.warning:  # so small that it was over before its first report
        pytest.fail("the replay made no report")
    assert "missing or partial" in str(app.warning[0].value)
    next(b for b in app.button if b.label == "Go on").click().run()
    assert not app.exception
    assert not app.warning
    assert "of prompt tokens cached" in read(app)


def test_both_pages_are_in_the_app() -> None:
    app = AppTest.from_file(str(APP), default_timeout=180).run()
    assert not app.exception
    assert "Compare with other settings" in "".join(str(h.proto.body) for h in app.get("html"))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    w = generate("growing_tenants", seed=0, requests=120, tenants=12, context_tokens=600, question_tokens=50, output_tokens=30)
    return compare(w, choices(["tokens=8000,max_num_seqs=8", "tokens=4160", "block_size=64"], w))


def shown_of(comparison: Comparison, shown: Shown) -> list[Shown]:
    from simkv.ui.shown import fold

    configs = [dataclasses.replace(shown.config, settings=s.run.settings) for s in comparison.sides]
    return [fold(Shown(c, s.run)) for c, s in zip(configs, comparison.sides, strict=True)]


def test_maps_share_one_clock(comparison: Comparison, shown: Shown) -> None:
    import json

    drawn = shown_of(comparison, shown)
    span = (0.0, max(maps.end(s) for s in drawn))
    for s in drawn:
        blob = with_meta(s.blob, maps.meta("g", span, s))
        length = int(np.frombuffer(blob, "<u4", 1)[0])
        meta = json.loads(blob[4 : 4 + length])
        assert (meta["group"], meta["span"], meta["end"]) == ("g", list(span), maps.end(s))
        assert blob[4 + length :] == s.blob[4 + int(np.frombuffer(s.blob, "<u4", 1)[0]) :]
    assert len({with_meta(s.blob, maps.meta("g", span, s)) for s in drawn}) == 3


def test_marks_where_sides_part(comparison: Comparison) -> None:
    known = [e.parting.at for e in comparison.explanations if e.parting is not None]
    assert len(known) == 2
    wide = maps.marks(comparison, (0.0, max(known) * 1e6))
    assert [m.label for m in wide] in (["B, C part"], ["C, B part"])
    assert wide[0].time == min(known)
    narrow = maps.marks(comparison, (0.0, 1e-9))
    assert sorted(m.label for m in narrow) == ["B parts", "C parts"]


def test_the_tables_of_the_page(comparison: Comparison) -> None:
    rows = result.causes(comparison)
    assert set(rows["missed by"]) <= {"A", "B", "C"}
    assert "evicted before it came back" in rows["why"]
    settings = result.settings(comparison)
    assert settings["setting"][:2] == ["block_size", "num_gpu_blocks"]
    assert settings["B"][settings["setting"].index("num_gpu_blocks")] == "260"


def test_the_best_figure_is_bold_and_judged() -> None:
    metric = {m.key: m for m in METRICS}
    row = Row(metric["ttft_p95_s"], (2.0, 1.0, None))
    assert figures.best(row) == {1}
    html = figures.html([row], ["A", "B", "<b>"])
    assert "<b>1 s</b><span class='better' title='better than A'>−50 %</span>" in html
    assert "&lt;b&gt;" in html
    assert "no data" in html
    assert figures.best(Row(metric["usage_mean"], (0.1, 0.2))) == set()
    assert figures.best(Row(metric["hit_rate"], (0.1, 0.1))) == set()


def test_distributions_end_at_one(comparison: Comparison) -> None:
    for side in comparison.sides:
        for x, y in (charts.ttft(side), charts.inter_token(side)):
            assert y[-1] == pytest.approx(1.0)
            assert (np.diff(x) >= 0).all()
            assert (np.diff(y) > 0).all()
    x, y = charts.spread(np.array([3.0, np.nan, 1.0]), np.array([1.0, 5.0, 3.0]))
    assert (x.tolist(), y.tolist()) == ([1.0, 3.0], [0.75, 1.0])


def test_curves_use_one_window(comparison: Comparison) -> None:
    curves = charts.over_time(comparison.sides)
    assert list(curves) == ["A", "B", "C"]
    assert all(np.nanmax(y) <= 1 for _, y in curves.values())


def test_links_to_explore_say_all_settings_or_are_not_there() -> None:
    assert navigation.control_values(EngineSettings(block_size=32, enable_prefix_caching=False)) == {
        "block_size": "32",
        "enable_prefix_caching": "false",
    }
    assert navigation.control_values(EngineSettings(num_gpu_blocks=99)) == {"num_gpu_blocks": "99", "memory": "blocks"}
    assert navigation.control_values(EngineSettings(num_gpu_blocks=99, gpu="A100-SXM4-80GB")) is None
    assert navigation.control_values(EngineSettings(kv_cache_dtype="fp8")) is None
    assert navigation.control_values(SglangSettings(page_size=64)) == {"engine": "SGLang", "sglang.page_size": "64"}


def test_a_side_without_a_log_has_no_map_but_everything_else(comparison: Comparison) -> None:
    without = Comparison(tuple(Side(s.name, s.label, dataclasses.replace(s.run, log=None)) for s in comparison.sides))
    assert without.rows
    assert all(e.sentence for e in without.explanations)
