"""The host tier's tab and its controls, by AppTest."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from simkv.diagnosis.break_even import break_even
from simkv.hardware import find_gpu
from simkv.hardware.transfer import host_link
from simkv.settings import EngineSettings
from simkv.ui.pages import explore
from simkv.ui.tabs import host_tier
from tests.ui.opened import open_app

TAB = {
    "tab": "Host tier",
    "source": "Generator",
    "generator": "Growing tenants",
    "growing_tenants.requests": "60",
    "memory": "blocks",
    "num_gpu_blocks": "900",
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch, fresh_store: None) -> None:
    monkeypatch.setattr(explore, "PATIENCE_S", 120.0)


def labels(app: AppTest) -> list[str]:
    return [str(m.label) for m in app.metric]


def test_a_run_without_a_tier_says_what_one_could_save() -> None:
    app = open_app(**TAB)
    assert any("no host tier" in str(i.value) for i in app.info)
    assert any("moves the KV of" in str(t.value) for t in app.text)
    assert "Found anywhere" not in labels(app)


def test_device_and_host_have_rates_of_their_own() -> None:
    app = open_app(**TAB, kv_offloading_size="20")
    assert app.number_input(key="kv_offloading_size").value == 20
    assert {"GPU hit rate, whole run", "Host hit rate, of the rest", "Found anywhere", "Host occupancy, mean"} <= set(labels(app))
    assert any("never added" in str(c.value) for c in app.caption)
    assert not app.error


def test_a_small_tier_is_warned_about() -> None:
    app = open_app(**TAB, kv_offloading_size="0.1")
    assert any("longer than the host tier" in str(w.value).replace("\\", "") for w in app.warning)


def test_the_simple_connector_has_its_own_controls() -> None:
    app = open_app(**TAB, kv_offloading_size="20", kv_offload_connector="simple", kv_offload_lazy="true")
    assert app.toggle(key="kv_offload_lazy").value is True
    assert all(c.key != "kv_offload_eviction_policy" for c in app.get("button_group"))


@pytest.mark.parametrize("bandwidth", [1e9, None])
def test_the_curve_marks_the_break_even(bandwidth: float | None) -> None:
    found = break_even(EngineSettings(), host_link(find_gpu("H100-SXM5-80GB"), bandwidth), longest=20_000)
    figure = host_tier.break_even_figure(found)
    assert [t.name for t in figure.data] == ["load it from the host", "compute it again"]
    assert [10**note.x for note in figure.layout.annotations] == pytest.approx([] if found.length is None else [found.length])
