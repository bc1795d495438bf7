"""Settings as people write them, and the same KV memory for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.comparison import choices
from simkv.comparison.choices import derived, read_text, write_text
from simkv.comparison.same_memory import tokens_of
from simkv.errors import InputError, SettingsError, SimkvError
from simkv.settings import EngineSettings, SglangSettings
from simkv.workload.generators import generate
from tests.comparison.hand import request, traffic

PLAIN = generate("shared_system_prompt", requests=4)


def settings(*texts: str) -> list[dict[str, object]]:
    return [c.settings.to_mapping() for c in choices(texts, PLAIN)]


def test_the_others_are_the_first_with_what_they_change() -> None:
    a, b, c = settings("block_size=32,max_num_seqs=8", "max_num_seqs=16", "default")
    assert (a["block_size"], a["max_num_seqs"]) == (32, 8)
    assert (b["block_size"], b["max_num_seqs"]) == (32, 16)
    assert c == a


def test_names_and_labels() -> None:
    found = choices(["", "block_size=8", "engine_version=0.10"], PLAIN)
    assert [(c.name, c.label) for c in found] == [("A", "default"), ("B", "block_size=8"), ("C", "engine_version=0.10")]
    assert found[2].settings.engine_version == "0.10"


def test_commas_inside_brackets_and_quotes_do_not_separate() -> None:
    assert read_text('hybrid=[{type="sliding", window=64}, {type="full"}],block_size=8') == {
        "hybrid": '[{type="sliding", window=64}, {type="full"}]',
        "block_size": "8",
    }
    assert read_text("model='a,b', gpu=x") == {"model": "'a,b'", "gpu": "x"}


def test_an_engine_may_stand_without_its_name() -> None:
    assert read_text("sglang, page-size = 64") == {"engine": "sglang", "page_size": "64"}


@pytest.mark.parametrize("text", ["nonsense", "=3", "block_size=16,oops", "a b c"])
def test_what_is_no_setting_is_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="is no setting; expected name=value"):
        read_text(text)


def test_a_name_may_stand_once() -> None:
    with pytest.raises(SettingsError, match="one value; 16 was given before"):
        read_text("block_size=16,block-size=32")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["block_size=0"], "block_size=0: allowed is a whole number"),
        (["default", "no_such=1"], "B: no_such=1: allowed is a setting of vllm"),
        (["engine=tgi"], "engine=tgi: allowed is"),
        (["tokens=none,num_gpu_blocks=1"], "num_gpu_blocks=1"),
        (["tokens=-4"], "tokens=-4: allowed is a whole number of at least 1"),
        (["tokens=17"], "tokens=17: allowed is at least 32"),
        (["tokens=3200,num_gpu_blocks=9"], "tokens=3200: allowed is nothing beside"),
        (["default"] * 5, "1 to 4 settings"),
        ([], "1 to 4 settings"),
    ],
)
def test_impossible_settings_are_a_sentence(texts: list[str], expected: str) -> None:
    with pytest.raises(SimkvError, match=expected):
        choices(texts, PLAIN)


def test_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('block_size = 32\nengine_version = "0.18"\ntokens = 6400\n', encoding="utf-8")
    (a,) = settings(str(file))
    assert (a["block_size"], a["engine_version"], a["num_gpu_blocks"]) == (32, "0.18", 200)
    file.write_text("block_size =", encoding="utf-8")
    with pytest.raises(InputError, match="no readable settings"):
        settings(str(file))
    with pytest.raises(InputError, match="no readable settings"):
        settings(str(tmp_path / "missing.toml"))


def test_another_block_size_keeps_the_memory() -> None:
    found = choices(["block_size=16,num_gpu_blocks=2000", "block_size=128", "kv_cache_dtype=fp8", "num_gpu_blocks=50"], PLAIN)
    assert [c.settings.to_mapping()["num_gpu_blocks"] for c in found] == [2000, 250, 4000, 50]
    assert found[1].notes == ("num_gpu_blocks=250 is the same KV memory as A's 32,000 tokens.",)
    assert found[3].notes == ()


def test_a_share_of_the_gpu_frees_the_pool_from_the_first_ones_size() -> None:
    _, b = settings("num_gpu_blocks=2000", "gpu_memory_utilization=0.5")
    assert b["num_gpu_blocks"] is None


def test_tokens_size_the_pool_of_any_engine() -> None:
    a, b, c = settings("tokens=32000", "sglang", "sglang,page_size=64,tokens=6400")
    assert a["num_gpu_blocks"] == 2000
    assert b["max_total_tokens"] == 32_000
    assert c["max_total_tokens"] == 6400


def test_another_engine_takes_over_what_both_know() -> None:
    base = EngineSettings(gpu="A100-SXM4-80GB", max_num_seqs=7, max_model_len=4096, block_size=32, num_gpu_blocks=100)
    made, notes = derived(base, {"engine": "sglang"})
    assert isinstance(made, SglangSettings)
    assert (made.gpu, made.max_running_requests, made.context_length, made.max_total_tokens) == ("A100-SXM4-80GB", 7, 4096, 3200)
    assert made.page_size == 1
    assert len(notes) == 1
    back, _ = derived(made, {"engine": "vllm"})
    assert isinstance(back, EngineSettings)
    assert (back.gpu, back.max_num_seqs, back.max_model_len, back.num_gpu_blocks) == ("A100-SXM4-80GB", 7, 4096, 200)


def test_settings_of_the_file_come_in_between() -> None:
    w = traffic([request("a", 20)])
    found = choices(["default", "block_size=8", "num_gpu_blocks=50"], w)
    mappings = [c.settings.to_mapping() for c in found]
    assert [(m["block_size"], m["num_gpu_blocks"], m["max_model_len"]) for m in mappings] == [(4, 100, 256), (8, 50, 256), (4, 50, 256)]


@given(
    block=st.sampled_from([1, 8, 16, 48, 128]),
    other=st.sampled_from([1, 8, 16, 48, 128]),
    blocks=st.integers(2, 100_000),
    dtype=st.sampled_from(["auto", "fp8"]),
)
def test_never_more_memory_than_the_first(block: int, other: int, blocks: int, dtype: str) -> None:
    """In bytes (fp8 takes half), and less than one block less."""
    base = EngineSettings(block_size=block, num_gpu_blocks=blocks)
    share = 1 if dtype == "auto" else 2
    if blocks * block * share < 2 * other:
        return
    made, _ = derived(base, {"block_size": other, "kv_cache_dtype": dtype})
    tokens = tokens_of(made)
    assert tokens is not None
    assert blocks * block * share - other < tokens <= blocks * block * share


@given(
    st.dictionaries(
        st.sampled_from(["block_size", "max_num_seqs", "watermark", "enable_prefix_caching", "model"]),
        st.one_of(st.integers(1, 99), st.booleans(), st.none(), st.sampled_from(["x", "Llama-3.1-8B"])),
    )
)
def test_written_changes_are_read_back(changes: dict[str, object]) -> None:
    expected = {name: "none" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for name, v in changes.items()}
    assert read_text(write_text(changes)) == expected
