"""A replay under way: what the page says, and that Cancel keeps what there is."""

import dataclasses

import pytest
from streamlit.testing.v1 import AppTest

from simkv.ui import progress, replaying
from simkv.ui.config import Config
from simkv.ui.pages import explore
from simkv.ui.run_store import Job
from simkv.ui.shown import Shown
from tests.ui.conftest import APP
from tests.ui.test_explore import SMALL


@dataclasses.dataclass
class Progress:
    simulated_s: float = 723.0
    finished: int = 5_210
    requests: int = 12_031
    fraction: float = 0.43


def a_job() -> Job:
    return Job(Config("trace", "a"), lambda job: None)  # type: ignore[arg-type, return-value]


def test_every_phase_has_its_sentence() -> None:
    job = a_job()
    assert progress.sentence(job).startswith("Preparing")
    job.phase = "compiling"
    assert "Compiling the engine once on this machine" in progress.sentence(job)
    assert progress.share(job) == 0.0
    job.report(Progress())
    said = progress.sentence(job)
    assert said.startswith("Simulated clock 0:12:03, 5,210 of 12,031 requests finished, about")
    assert progress.share(job) == pytest.approx(0.43)
    job.phase = "folding"
    assert "Drawing the block map" in progress.sentence(job)
    job.cancelled.set()
    assert progress.sentence(job) == "Stopping"


def test_cancel_keeps_the_partial_result(monkeypatch: pytest.MonkeyPatch, fresh_store: None, shown: Shown) -> None:
    def slow(job: Job, workload: object, config: Config) -> Shown:
        job.report(Progress())
        assert job.cancelled.wait(60)
        return dataclasses.replace(shown, config=config, run=dataclasses.replace(shown.run, status="partial"))

    monkeypatch.setattr(replaying, "work", slow)
    monkeypatch.setattr(explore, "PATIENCE_S", 0.3)
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in SMALL.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    next(b for b in app.button if b.label == "Cancel").click().run()
    app.run()
    assert not app.exception
    assert any(h.value.startswith("Partial result") for h in app.subheader)
