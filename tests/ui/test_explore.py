"""The page by AppTest: every state without an exception, every setting in the URL."""

import json
import subprocess
import sys

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from simkv.settings import ContiguousSettings
from simkv.ui import cursor, replaying, sources
from simkv.ui.config import Config
from simkv.ui.pages import explore
from simkv.ui.run_store import Job, store
from simkv.ui.shown import Shown
from simkv.ui.tabs import requests
from simkv.workload.generators import generate
from tests.ui.opened import open_app

SMALL = {"source": "Generator", "shared_system_prompt.requests": "60", "memory": "blocks", "num_gpu_blocks": "400"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(explore, "PATIENCE_S", 120.0)


def headline(app: AppTest) -> str:
    return str(next(h.value for h in app.subheader if "prompt tokens" in h.value))


def test_it_opens_already_computed() -> None:
    app = open_app()
    assert "of prompt tokens came from the cache" in headline(app)
    assert [m.label.split(",")[0] for m in app.metric] == ["Hit rate", "KV usage", "Evictions / s", "TTFT p95", "Preemptions up to here"]
    assert not app.error
    assert "step" not in app.query_params


def test_the_server_prepares_what_the_page_opens_with(monkeypatch: pytest.MonkeyPatch) -> None:
    from simkv import warm
    from simkv.ui import serve, sidebar

    nothing = [sys.executable, "-c", ""]
    monkeypatch.setattr(warm, "the_rest", lambda: subprocess.Popen(nothing))
    serve.prepare()
    prepared = store().get(sidebar.opening().digest)
    assert prepared is not None
    assert prepared.done.wait(180)
    open_app()
    assert len(store()) == 1


def test_settings_in_the_url_are_taken_over() -> None:
    app = open_app(**SMALL, block_size="32", max_num_seqs="4", enable_prefix_caching="false")
    assert app.select_slider(key="block_size").value == 32
    assert app.number_input(key="max_num_seqs").value == 4
    assert "Prefix caching is off" in str(app.subheader[0].value) + "".join(str(h.value) for h in app.subheader)


def test_contiguous_memory_on_the_page() -> None:
    app = open_app(**SMALL, engine="Contiguous", **{"contiguous.num_gpu_blocks": "4000", "contiguous.preemption_mode": "swap"})
    assert "Prefix caching is off" in "".join(str(h.value) for h in app.subheader)
    assert any("looks for an unbroken piece" in str(c.value) for c in app.caption)


def test_a_cell_of_a_reservation_is_written_or_not_yet() -> None:
    from simkv.events.folds.pool import pool_at
    from simkv.ui import details

    workload, settings = generate("shared_system_prompt", requests=6), ContiguousSettings(num_gpu_blocks=2000, max_num_seqs=4)
    config = Config("generator", "shared_system_prompt", (), settings=settings)
    job = Job(config, lambda job: replaying.work(job, workload, config))
    job.run()
    shown = job.result
    assert shown is not None
    assert shown.run.log is not None
    state = pool_at(shown.run.log, 0)
    table = state.tables(0)[0].tolist()
    holds = [next(f.value for f in details.block_facts(shown, state, b) if f.label == "holds") for b in (table[0], table[-1], 1999)]
    assert holds == ["token states", "nothing yet: reserved", "nothing"]
    assert not any(f.label in ("queue", "hash") for f in details.block_facts(shown, state, table[0]))


def test_nonsense_in_the_url_falls_back() -> None:
    app = open_app(block_size="banana", limit="-7", step="99999999999", block="x", request="1e9", memory="tape")
    assert app.select_slider(key="block_size").value == 16
    assert "came from the cache" in headline(app)


def test_a_changed_setting_recomputes_at_once() -> None:
    app = open_app(**SMALL)
    before = headline(app)
    app.number_input(key="num_gpu_blocks").set_value(4000).run()
    assert not app.exception
    assert headline(app) != before
    assert "small enough to recompute" in "".join(c.value for c in app.caption)


def test_a_large_run_waits_for_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app(**SMALL)
    monkeypatch.setattr(replaying, "SMALL_S", 0.0)
    app.number_input(key="num_gpu_blocks").set_value(500).run()
    assert "press Run" in "".join(c.value for c in app.caption)
    next(b for b in app.button if b.label == "Run").click().run()
    assert not app.exception
    assert "press Run" not in "".join(c.value for c in app.caption)


def test_impossible_settings_are_a_sentence_over_the_last_result() -> None:
    app = open_app(**SMALL)
    app.number_input(key="num_gpu_blocks").set_value(10).run()
    assert not app.exception
    assert "max\\_model\\_len" in app.error[0].value
    assert "last good result" in "".join(c.value for c in app.caption)
    assert "came from the cache" in headline(app)


def test_a_bad_first_setting_is_a_sentence_alone() -> None:
    app = open_app(**{**SMALL, "num_gpu_blocks": "3"})
    assert len(app.error) == 1
    assert len(app.metric) == 0


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x.jsonl", b'{"timestamp": 0, "input_length": -3, "output_length": 1, "hash_ids": [1]}\n', "line 1"),
        ("<img src=x onerror=alert(1)>.jsonl", b"\x00\x01\x02", "unknown format"),
        ("lfs.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n", "LFS"),
        ("empty.jsonl", b"", ""),
    ],
)
def test_a_bad_upload_is_a_sentence(name: str, data: bytes, expected: str) -> None:
    app = open_app(source="Upload")
    assert "Choose a trace file" in app.info[0].value
    app.file_uploader(key="upload").set_value((name, data, "application/octet-stream")).run()
    assert not app.exception
    assert len(app.error) == 1
    assert expected in app.error[0].value
    assert "<img" not in app.error[0].value.replace("\\<img", "")


def test_an_upload_is_replayed() -> None:
    rows = [{"timestamp": i * 100, "input_length": 1024, "output_length": 8, "hash_ids": [1, 2 + i % 3]} for i in range(40)]
    app = open_app(source="Upload", memory="blocks", num_gpu_blocks="200")
    app.file_uploader(key="upload").set_value(("mine.jsonl", "\n".join(map(json.dumps, rows)).encode(), "text/plain")).run()
    assert not app.exception
    assert not app.error
    assert "came from the cache" in headline(app)


def test_dropped_rows_and_the_model_of_seconds_are_told() -> None:
    rows = [json.dumps({"timestamp": 0, "input_length": 512 * n, "output_length": 8, "hash_ids": [1]}) for n in (1, -3)]
    app = open_app(source="Upload", skip_bad_rows="true")
    app.file_uploader(key="upload").set_value(("mine.jsonl", "\n".join(rows).encode(), "text/plain")).run()
    assert not app.exception
    assert "1 of 2 rows were dropped" in app.warning[0].value
    assert "line 2" in app.warning[0].value
    told = [t.value for t in app.text]
    assert any("fixed part" in t for t in told[told.index("Decisions are exact, seconds are a model:") :])


@pytest.mark.parametrize(
    "tab", ["Free queue", "Block tables", "Events", "Hit rate over time", "KV memory", "Host tier", "Requests", "All blocks"]
)
def test_every_tab_draws(tab: str) -> None:
    app = open_app(**SMALL, tab=tab)
    assert not app.error


@pytest.mark.parametrize("generator", range(9))
def test_every_generator_draws(generator: int) -> None:
    from simkv.workload.generators import generators

    chosen = generators()[generator]
    app = open_app(source="Generator", generator=chosen.title, **{f"{chosen.name}.requests": "40"})
    assert not app.error, app.error[0].value


def test_salts_are_offered_for_what_the_source_knows() -> None:
    app = open_app(source="Trace", trace="Mooncake conversation", limit="100", salts="per tenant")
    assert not app.error
    assert app.selectbox(key="salts").options == ["as recorded", "off"]
    app.selectbox(key="trace").set_value("Claude Code").run()
    assert app.selectbox(key="salts").options == ["as recorded", "off", "per session"]
    app.selectbox(key="salts").set_value("per session").run()
    assert not app.exception
    assert not app.error


RECORDED = {
    "config": {"block_size": 24, "num_gpu_blocks": 90, "max_num_seqs": 3, "watermark": 0.4, "sliding_window": 48},
    "requests": [{"id": f"r{i}", "arrive": i, "prompt": [{"seed": i % 3, "n": 200}], "output_len": 4} for i in range(20)],
}


def test_recorded_settings_are_what_the_controls_show_and_a_change_wins() -> None:
    app = open_app(source="Upload", block_size="32")
    app.file_uploader(key="upload").set_value(("mine.json", json.dumps(RECORDED).encode(), "application/json")).run()
    assert not app.exception
    assert not app.error, app.error[0].value
    assert app.select_slider(key="block_size").value == 24
    assert (app.number_input(key="num_gpu_blocks").value, app.number_input(key="max_num_seqs").value) == (90, 3)
    assert app.slider(key="watermark").value == 0.4
    said = next(c.value for c in app.caption if "records settings of its own" in c.value)
    assert "sliding" in said
    run = newest().run
    assert (run.resolved.block_size, run.resolved.num_gpu_blocks, run.resolved.groups[0].window) == (24, 90, 48)
    app.select_slider(key="block_size").set_value(16).run()
    app.slider(key="watermark").set_value(0.0).run()
    assert not app.exception
    run = newest().run
    assert (run.resolved.block_size, run.resolved.watermark_blocks, run.resolved.num_gpu_blocks, run.resolved.max_num_seqs) == (
        16,
        0,
        90,
        3,
    )
    app.segmented_control(key="memory").set_value("GPU").run()
    assert not app.exception
    assert newest().run.resolved.capacity is not None
    app.segmented_control(key="source").set_value("Trace").run()
    assert not app.exception
    assert app.select_slider(key="block_size").value == 32
    assert app.number_input(key="max_num_seqs").value is None
    assert not any("records settings" in c.value for c in app.caption)


def newest() -> Shown:
    shown = list(store()._jobs.values())[-1].result
    assert shown is not None
    return shown


def test_the_format_of_an_upload_can_be_named() -> None:
    rows = [json.dumps({"timestamp": i, "input_length": 512, "output_length": 8, "hash_ids": [1]}) for i in range(3)]
    app = open_app(source="Upload", memory="blocks", num_gpu_blocks="200")
    assert app.selectbox(key="format").options[0].startswith("auto")
    app.file_uploader(key="upload").set_value(("mine.jsonl", "\n".join(rows).encode(), "text/plain")).run()
    assert not app.error
    app.selectbox(key="format").set_value("azure").run()
    assert not app.exception
    assert len(app.error) == 1
    app.selectbox(key="format").set_value("mooncake").run()
    assert not app.error


def test_a_link_shows_the_same_place() -> None:
    open_app(**SMALL)
    shown = next(j for j in store()._jobs.values()).result
    assert shown is not None
    frame = int(shown.history.frames[len(shown.history.frames) // 3])
    again = open_app(**SMALL, step=str(frame), block="17", request="3")
    here = again.session_state[cursor._SLOT]
    assert (here.step, here.block, here.request) == (frame, 17, 3)
    assert again.query_params["step"] in (str(frame), [str(frame)])


def test_the_way_out_an_error_names_is_there() -> None:
    app = open_app(**{**SMALL, "num_gpu_blocks": "10", "max_model_len": "100"})
    assert not app.error
    assert any("60 of 60 requests are longer than max\\_model\\_len" in h.value for h in app.subheader)


def test_the_table_shown_is_of_a_request_that_holds_the_selected_block() -> None:
    open_app(**SMALL)
    shown = next(j for j in store()._jobs.values()).result
    assert shown is not None
    for step in shown.history.frames.tolist():
        state = shown.state(step)
        live = [int(r) for r in state.live()]
        block = next((int(b) for r in live[1:] for b in state.tables(r)[0] if b and live[0] not in state.owners(int(b))), None)
        if block is not None:
            break
    app = open_app(**SMALL, tab="Block tables", step=str(step), block=str(block))
    table = next(s for s in app.selectbox if s.label.startswith("Request ("))
    assert table.value in [int(r) for r in state.owners(block)]


def test_slower_arrivals_are_another_question() -> None:
    app = open_app(**SMALL)
    runs = len(store())
    app.select_slider(key="speed").set_value("¼×").run()
    assert not app.exception
    assert len(store()) == runs + 1


def test_no_content_is_no_hit_rate_and_not_zero() -> None:
    app = open_app(source="Trace", trace="Azure 2023 chat", limit="100", tab="Hit rate over time")
    assert (app.metric[0].value, app.metric[0].delta) == ("no data", "no data whole run")
    assert "no hit rate to draw" in app.info[0].value
    run = next(j for j in store()._jobs.values() if j.config.limit == 100).result
    assert run is not None
    assert np.isnan(run.curves(40)["hit_rate"]).all()
    assert np.isnan(requests.columns(run)["hit rate"]).all()
    assert np.isfinite(run.curves(40)["usage"]).all()


@pytest.mark.parametrize("trace", sources.traces())
def test_every_bundled_trace_draws(trace: str) -> None:
    app = open_app(source="Trace", trace=trace, limit="100")
    assert not app.error, app.error[0].value
    assert len(app.metric) == 5
