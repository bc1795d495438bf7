"""Our own format: token for token what the recorder fed to the engine, in both forms, and every wrong field."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simkv.errors import InputError
from simkv.settings import EngineSettings
from simkv.workload.registry import read_bytes, read_workload
from simkv.workload.workload import ABORT, RESET, RESET_RUNNING, tokens_of
from tests.workload.samples import GOLDEN, LIVE, lines

RECORDED = sorted((Path(__file__).parents[1] / "golden" / "vllm").glob("*.input.json*"))
BENCH = Path(__file__).parents[1] / "golden" / "bench" / "bench.input.json.gz"
LIVE_FILES = Path(__file__).parents[1] / "golden" / "vllm_live"


def load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def token(seed: int, i: int) -> int:
    """The recorder's rule, one token at a time."""
    mask = (1 << 64) - 1
    z = ((seed << 32) + i + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return 1 + (z ^ (z >> 31)) % 31_999


def expand(spec: Any) -> dict[str, tuple[list[int], list[int]]]:
    """Prompt and output tokens of every request, segment by segment."""
    out: dict[str, tuple[list[int], list[int]]] = {}
    for index, r in enumerate(spec["requests"]):
        prompt: list[int] = []
        for s in r["prompt"]:
            if isinstance(s, list):
                prompt += s
            elif "history" in s:
                prompt += out[s["history"]][0] + out[s["history"]][1]
            else:
                prompt += [token(s["seed"], i) for i in range(s.get("start", 0), s.get("start", 0) + s["n"])]
        seed = r.get("out_seed", 1_000_000 + index)
        out[r["id"]] = (prompt, [token(seed, j) for j in range(r["output_len"])])
    return out


def check(spec: Any, data: bytes, every: int = 1) -> None:
    w, known = read_bytes(data, "g"), expand(spec)
    requests = spec["requests"]
    order = sorted(range(len(requests)), key=lambda i: (requests[i]["arrive"], i))
    assert w.ids == [requests[i]["id"] for i in order]
    assert w.tie is not None
    assert w.tie.tolist() == [float(i) * 1e-6 + float(requests[i]["arrive"]) for i in order]
    for k in range(0, len(w), every):
        prompt, output = known[w.ids[k]]
        assert (w.num_prompt[k], w.num_output[k]) == (len(prompt), len(output))
        assert tokens_of(w, k).tolist() == prompt + output


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name.split(".")[0])
def test_recorded_inputs_token_for_token(path: Path) -> None:
    spec = load(path)
    check(spec, path.read_bytes(), every=1 if len(spec["requests"]) < 50 else 17)
    w = read_workload(path)
    settings = EngineSettings.from_mapping(w.engine)
    assert settings.num_gpu_blocks == spec["config"]["num_gpu_blocks"]
    assert settings.max_num_seqs == spec["config"].get("max_num_seqs", 128)
    assert settings.max_model_len == spec["config"].get("max_model_len", 8192)
    assert settings.async_scheduling is spec["config"].get("async_scheduling", False)
    assert settings.prefix_cache_retention_interval == spec["config"].get("retention_interval", 0)
    assert (w.time_unit, w.step_time["mode"]) == (("steps", "step") if spec["time"]["mode"] == "step" else ("seconds", "virtual"))
    assert len(w.actions) == len(spec.get("actions", []))


def test_all_48_recordings_are_here() -> None:
    assert len(RECORDED) == 48


def test_the_benchmark_input() -> None:
    w = read_workload(BENCH)
    assert len(w) == 2_000
    assert round(float(w.num_prompt.mean())) == 2_091
    assert round(float(w.num_output.mean())) == 197
    assert int(w.num_prompt.sum()) == 4_181_572
    assert dict(w.step_time) == {"mode": "virtual", "a": 0.008, "b": 4e-05, "c": 0.0002}
    assert len(w.runs) == 7_700
    check(load(BENCH), BENCH.read_bytes(), every=97)


def json_lines(spec: Any, **header: Any) -> bytes:
    return lines(
        [
            {"simkv": 1, **{k: spec[k] for k in ("name", "config", "time") if k in spec}, **header},
            *spec["requests"],
            *spec.get("actions", []),
        ]
    )


def test_both_forms_of_the_file_are_the_same() -> None:
    a, b = read_bytes(json.dumps(GOLDEN).encode(), "g"), read_bytes(json_lines(GOLDEN), "g")
    assert (a.ids, a.name, a.engine, a.step_time) == (b.ids, b.name, b.engine, b.step_time)
    assert np.array_equal(a.runs, b.runs)
    assert np.array_equal(a.actions, b.actions)
    check(GOLDEN, json_lines(GOLDEN))


def test_a_file_of_requests_alone() -> None:
    in_steps = [{**r, "arrive": i} for i, r in enumerate(GOLDEN["requests"])]  # type: ignore[dict-item]
    w = read_bytes(lines(in_steps), "g")
    assert (dict(w.engine), w.time_unit, len(w)) == ({}, "steps", 3)
    assert "Times are step numbers: the file has no time header." in w.report.notes[0]
    assert np.array_equal(read_bytes(json.dumps({"requests": in_steps}).encode(), "g").runs, w.runs)
    w = read_bytes(lines([{"simkv": 1, "time": {"mode": "seconds"}}, *GOLDEN["requests"]]), "g")  # type: ignore[misc]
    assert (dict(w.engine), dict(w.step_time), w.time_unit) == ({}, {}, "seconds")


@pytest.mark.parametrize("skip", [False, True])
def test_fractions_of_what(skip: bool) -> None:
    """Arrivals with fractions and no word on their unit: refused as a whole, with what to add; what to add helps."""
    untold = {k: v for k, v in GOLDEN.items() if k != "time"}
    for data in (json.dumps(untold).encode(), json_lines(untold)):
        with pytest.raises(InputError, match=r'"a" arrives at 0\.5, but without a time header arrive counts steps') as e:
            read_bytes(data, "g", skip_bad_rows=skip)
        assert '{"simkv": 1, "time": {"mode": "seconds"}}' in str(e.value)
    told = {**untold, "time": {"mode": "seconds"}}
    for data in (json.dumps(told).encode(), json_lines(told)):
        w = read_bytes(data, "g")
        assert w.time_unit == "seconds"
        assert "step" not in " ".join(w.report.notes)


def test_order_salts_priorities_actions() -> None:
    w = read_bytes(json.dumps(GOLDEN).encode(), "g")
    assert w.ids == ["b", "a", "c"]
    assert (w.salts, w.salt.tolist() if w.salt is not None else None) == (("", "s"), [1, 0, 0])
    assert w.priority is not None
    assert w.priority.tolist() == [0, 0, -1]
    assert w.actions.tolist() == [(1.0, 2, ABORT), (2.0, -1, RESET)]
    assert w.runs[: w.first_run[1]].tolist() == [(1, 0, 32), (2, 8, 20), (1_000_001, 0, 2)]


def test_a_history_holds_prompt_and_output_and_continues_runs() -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"].append(
        {"id": "d", "arrive": 3, "prompt": [{"history": "c"}, {"seed": 1_000_002, "start": 4, "n": 6}], "output_len": 1}
    )  # type: ignore[attr-defined]
    w = read_bytes(json.dumps(spec).encode(), "g")
    assert w.runs[w.first_run[3] :].tolist() == [(1, 0, 40), (1_000_000, 0, 3), (3, 0, 5), (1_000_002, 0, 10), (1_000_003, 0, 1)]


def test_explicit_token_ids_write_everything_out() -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"][0]["prompt"] = [[7, 8, 9], {"seed": 1, "n": 5}, []]  # type: ignore[index]
    w = read_bytes(json.dumps(spec).encode(), "g")
    assert (w.runs["seed"] == -1).all()
    check(spec, json.dumps(spec).encode())


def test_blocks_under_four_tokens_write_everything_out() -> None:
    for config in (
        {"num_gpu_blocks": 9, "block_size": 3},
        {"num_gpu_blocks": 9, "hybrid": [{"type": "full", "block_size": 8}, {"type": "full", "block_size": 6}]},
    ):
        spec = {**GOLDEN, "config": config}
        assert len(read_bytes(json.dumps(spec).encode(), "g").tokens)
        check(spec, json.dumps(spec).encode())


def test_seeds_count_modulo_two_to_the_32() -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"][0]["prompt"][0]["seed"] = (1 << 40) + 1  # type: ignore[index]
    spec["requests"][1]["out_seed"] = (1 << 35) + 77  # type: ignore[index]
    w = read_bytes(json.dumps(spec).encode(), "g")
    assert w.runs["seed"].max() < 1 << 32
    check(spec, json.dumps(spec).encode())


def test_adapters_and_cache_bypass() -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"][0]["lora"] = {"name": "x", "id": 4}  # type: ignore[index]
    spec["requests"][1]["lora"] = {"name": "y", "id": 2, "path": "/p"}  # type: ignore[index]
    spec["requests"][2]["skip_reading_prefix_cache"] = True  # type: ignore[index]
    w = read_bytes(json.dumps(spec).encode(), "g")
    assert [(a.name, a.id, a.path) for a in w.loras] == [("x", 4, "/lora/x"), ("y", 2, "/p")]
    assert (np.asarray(w.lora).tolist(), np.asarray(w.skip_cache).tolist()) == ([1, 0, -1], [False, False, True])


def test_closed_loop_tenants_and_sessions() -> None:
    rows = [
        {"id": "a", "arrive": 5, "prompt": [{"seed": 1, "n": 9}], "output_len": 1, "tenant": "t", "session": "s"},
        {"id": "b", "arrive": 1, "prompt": [{"seed": 1, "n": 9}], "output_len": 1, "after": "a"},
        {"id": "c", "arrive": 2, "prompt": [{"seed": 1, "n": 9}], "output_len": 1},
    ]
    w = read_bytes(lines([{"simkv": 1, "time": {"mode": "seconds"}}, *rows]), "g")
    assert (w.ids, np.asarray(w.after).tolist(), w.arrive.tolist()) == (["c", "a", "b"], [-1, -1, 1], [2, 5, 1])
    assert [w.tenants[k] for k in np.asarray(w.tenant)] == ["", "t", ""]


def test_resets_with_running_requests_and_unknown_aborts() -> None:
    actions = [{"at": 1, "op": "reset_prefix_cache", "reset_running_requests": True}, {"at": 0, "op": "abort", "id": "nobody"}]
    w = read_bytes(json.dumps({**GOLDEN, "actions": actions}).encode(), "g")
    assert w.actions.tolist() == [(0.0, -1, ABORT), (1.0, -1, RESET_RUNNING)]
    assert 'abort of "nobody" names no request' in w.report.notes[-1]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"id": "a"}, "id", 'the id "a" is taken'),
        ({"id": 5}, "id", "the value is 5"),
        ({"arrive": -1}, "arrive", "-1"),
        ({"arrive": float("nan")}, "arrive", "nan"),
        ({"arrive": True}, "arrive", "truth value"),
        ({"output_len": 0}, "output_len", "the value is 0"),
        ({"output_len": "3"}, "output_len", 'the text "3"'),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": "x"}, "prompt", 'the text "x"'),
        ({"prompt": [{"seed": 1, "n": 0}]}, "prompt", "no tokens"),
        ({"prompt": [{"seed": 1}]}, "prompt[0].n", "missing"),
        ({"prompt": [{"seed": -1, "n": 3}]}, "prompt[0].seed", "-1"),
        ({"prompt": [{"seed": 1, "n": 3, "start": -1}]}, "prompt[0].start", "-1"),
        ({"prompt": [{"seed": 1, "n": 1 << 31}]}, "prompt[0].n", "2147483648"),
        ({"prompt": [{"seed": 1, "n": (1 << 31) - 1}]}, "prompt", "2147483649 tokens with the output"),
        ({"prompt": [{"seed": True, "n": 3}]}, "prompt[0].seed", "truth value"),
        ({"prompt": [[1, 2, -3]]}, "prompt[0][2]", "-3"),
        ({"prompt": [[1, False]]}, "prompt[0][1]", "truth value"),
        ({"prompt": [{"history": "c"}]}, "prompt[0].history", 'the text "c"'),
        ({"prompt": [{"history": ["a"]}]}, "prompt[0].history", "a list"),
        ({"prompt": [5]}, "prompt[0]", "the value is 5"),
        ({"out_seed": -1}, "out_seed", "-1"),
        ({"cache_salt": 5}, "cache_salt", "the value is 5"),
        ({"priority": 1.5}, "priority", "1.5"),
        ({"priority": 1 << 31}, "priority", "2147483648"),
        ({"skip_reading_prefix_cache": 1}, "skip_reading_prefix_cache", "the value is 1"),
        ({"lora": "x"}, "lora", 'the text "x"'),
        ({"lora": {"name": "x"}}, "lora.id", "missing"),
        ({"lora": {"name": 3, "id": 1}}, "lora.name", "the value is 3"),
        ({"after": "c"}, "after", 'the text "c"'),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str, words: str) -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"][1].update(change)  # type: ignore[index]
    for data, line, prefix in ((json.dumps(spec).encode(), None, "requests[1]."), (json_lines(spec), 3, "")):
        with pytest.raises(InputError) as e:
            read_bytes(data, "g.json")
        assert (e.value.line, e.value.field) == (line, prefix + field)
        assert words in str(e.value)
        assert e.value.expected
        w = read_bytes(data, "g.json", skip_bad_rows=True)
        assert (w.report.rows, w.report.dropped, w.ids) == (3, 1, ["a", "c"])
        assert w.runs["seed"][w.first_run[1] - 1] == 1_000_000  # seeds and ties keep counting the file's rows
        assert w.tie is not None
        assert w.tie[1] == 1.0 + 2e-6


def test_requests_that_build_on_a_dropped_one_are_dropped_too() -> None:
    spec = copy.deepcopy(GOLDEN)
    spec["requests"][0]["output_len"] = -1  # type: ignore[index]
    w = read_bytes(json.dumps(spec).encode(), "g", skip_bad_rows=True)
    assert (w.ids, w.report.dropped) == (["b"], 2)
    assert len(w.report.first_dropped) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requests": []}, "the list is empty"),
        ({"requests": {}}, "an object"),
        ({"requests": [3]}, "found 3"),
        ({"time": {"mode": "wall"}}, 'field "time"'),
        ({"time": 3}, 'field "time"'),
        ({"time": {"mode": "virtual", "a": 1}}, 'field "b": the field is missing'),
        ({"time": {"mode": "virtual", "a": 1, "b": "x", "c": 0}}, 'field "b"'),
        ({"config": [1]}, 'field "config"'),
        ({"config": {"hybrid": [1]}}, "config.hybrid"),
        ({"config": {"block_size": 0}}, "config.block_size"),
        ({"config": {"hybrid": [{"type": "full", "block_size": "x"}]}}, r"config.hybrid\[0\].block_size"),
        ({"actions": [{"op": "abort", "id": "a"}]}, r"actions\[0\].at"),
        ({"actions": [{"at": 1, "op": "explode"}]}, r"actions\[0\].op"),
        ({"actions": [{"at": 1, "op": "abort"}]}, r"actions\[0\].id"),
        ({"actions": "x"}, "actions"),
        ({"actions": [7]}, r"actions\[0\]"),
    ],
)
def test_wrong_headers_and_actions(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_bytes(json.dumps({**GOLDEN, **change}).encode(), "g", format="golden")


def test_broken_json_is_placed() -> None:
    text = json.dumps(GOLDEN, indent=1)
    with pytest.raises(InputError) as e:
        read_bytes(text.replace('"id": "b"', '"id": b').encode(), "g", format="golden")
    assert e.value.line == text[: text.index('"id": "b"')].count("\n") + 1
    data = json_lines(GOLDEN).replace(b'"id": "b"', b'"id": b')
    with pytest.raises(InputError, match="line 3: not JSON"):
        read_bytes(data, "g")
    assert read_bytes(data, "g", skip_bad_rows=True).report.dropped == 1
    with pytest.raises(InputError, match="a second header"):
        read_bytes(json_lines(GOLDEN) + b'{"config": {}}', "g")


@pytest.mark.parametrize("name", ["live_seq_public", "live_seq_salts_public", "live_decay_public"])
def test_recordings_of_a_server(name: str) -> None:
    path = LIVE_FILES / f"{name}.json.gz"
    w, document = read_workload(path), load(path)
    requests = {r["i"]: r for r in document["requests"]}
    results = {r["i"]: r for r in document["results"]}
    assert w.ids is not None
    assert len(w) == len(requests)
    for k in range(0, len(w), 29):
        i = int(w.ids[k])
        assert tokens_of(w, k)[: w.num_prompt[k]].tolist() == requests[i]["prompt"]
        assert w.num_output[k] == results[i]["completion_tokens"]
        if w.salt is not None:
            assert w.salts[w.salt[k]] == (requests[i].get("cache_salt") or "")
    if document["mode"] == "sequential":
        assert np.asarray(w.after).tolist() == list(range(-1, len(w) - 1))
        assert not w.arrive.any()
    else:
        assert w.after is None
        assert (np.diff(w.arrive) >= 0).all()
    settings = EngineSettings.from_mapping(w.engine)
    assert (settings.block_size, settings.num_gpu_blocks, settings.engine_version) == (32, 257, "0.32")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requests": 3}, 'field "requests"'),
        ({"results": None}, 'field "results"'),
        ({"server": [1]}, 'field "server"'),
        ({"requests": [{"i": 0, "prompt": []}]}, r"requests\[0\].prompt"),
        ({"requests": [{"i": 0, "prompt": [1, "a"]}]}, r"requests\[0\].prompt"),
        ({"requests": [{"i": 9, "prompt": [1]}]}, "no result with i 9"),
        ({"requests": [{"prompt": [1]}]}, r"requests\[0\].i"),
        ({"requests": ["x"]}, r"requests\[0\]"),
        ({"results": [{"i": 0, "sent": 1, "completion_tokens": 0}]}, "completion_tokens"),
        ({"results": [{"i": 0, "sent": None, "completion_tokens": 3}]}, "sent"),
    ],
)
def test_wrong_recordings(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_bytes(json.dumps({**LIVE, **change}).encode(), "l", format="live")


def test_a_recording_with_a_result_missing_may_skip_it() -> None:
    document = {**LIVE, "results": LIVE["results"][1:]}  # type: ignore[index]
    w = read_bytes(json.dumps(document).encode(), "l", skip_bad_rows=True)
    assert (w.ids, w.report.rows, w.report.dropped) == (["1"], 2, 1)
