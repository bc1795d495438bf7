"""Block digests, byte for byte as the real engine made them."""

from __future__ import annotations

import json
import random

import cbor2
import numpy as np
import pytest

from simkv.errors import SettingsError
from simkv.events.digests import Digests, cbor, none_hash, request_digests
from simkv.workload.registry import read_bytes
from simkv.workload.workload import IMAGE, RUN, Workload

# Beginnings of digests in event logs of the real vLLM 0.32.0 scheduler; the requests are written as in those recordings.
PROMPT = [{"seed": 1, "n": 50}]
RECORDED = {
    "plain": ("sha256", {}, ["af1ddafd9d75bdbc", "b1b5df92c10ecb79", "6f9dbfe0af6de9f4"]),
    "salt": ("sha256", {"cache_salt": "t1"}, ["74490646f35182a9", "35e25944d2653978", "3b9142aac217a0eb"]),
    "other salt": ("sha256", {"cache_salt": "t2"}, ["25c7d75eb893c894", "9e5d417cc1b0d14f", "0edce72537056794"]),
    "lora": ("sha256", {"lora": {"name": "A", "id": 1}}, ["4d6f6ab09fbaca64", "164ee43fcf39fcce"]),
    "lora at another path": ("sha256", {"lora": {"name": "A", "id": 1, "path": "/lora/A_v2"}}, ["db618bac1c1567ff", "aded7e99b3fb8f18"]),
    "lora and salt": ("sha256", {"lora": {"name": "B", "id": 2}, "cache_salt": "s"}, ["69bd9ee8dee07070", "5220974c7bf0c147"]),
    "cbor": ("sha256_cbor", {}, ["995c7c14958b9778", "c1fa929d3b6c57d4", "4d57f642410175ce"]),
    "cbor, salt": ("sha256_cbor", {"cache_salt": "t1"}, ["4dee6cf46a705304", "31fd5b6fc0b85a9a", "26fc3a566086ed8d"]),
    "cbor, lora": ("sha256_cbor", {"lora": {"name": "A", "id": 1}}, ["2f03304e22a3b201", "66260f0fac8a5090", "5383d263d869ae0c"]),
    "cbor, lora and salt": (
        "sha256_cbor",
        {"lora": {"name": "A", "id": 1}, "cache_salt": "t1"},
        ["e427875a291b9711", "49e483c4a25f6924", "c02078122070e91d"],
    ),
}

# The first two blocks of a BlockStored event of a running vLLM 0.32.0 server (block size 32), as numbers on the wire.
WIRE = [2354137558969029162, 163005848066737538]
TOKENS = [
    85,
    91,
    85,
    86,
    71,
    79,
    28,
    223,
    59,
    81,
    87,
    265,
    84,
    71,
    265,
    223,
    261,
    78,
    82,
    72,
    87,
    78,
    265,
    85,
    85,
    263,
    86,
    268,
    86,
    16,
    223,
    59,
    81,
    87,
    265,
    84,
    71,
    265,
    223,
    261,
    78,
    82,
    72,
    87,
    78,
    265,
    85,
    85,
    263,
    86,
    268,
    86,
    16,
    223,
    59,
    81,
    87,
    265,
    84,
    71,
    265,
    223,
    261,
    78,
]


def workload(prompt: list[object], **more: object) -> Workload:
    request = {"id": "r", "arrive": 0, "prompt": prompt, "output_len": 4, **more}
    spec = {"name": "one", "config": {"num_gpu_blocks": 100}, "time": {"mode": "step"}, "requests": [request]}
    return read_bytes(json.dumps(spec).encode(), "one.json")


@pytest.mark.parametrize("name", RECORDED)
def test_digests_of_recorded_runs(name: str) -> None:
    algo, fields, expected = RECORDED[name]
    got = request_digests(workload(PROMPT, **fields), 0, 16, algo, upto=len(expected))
    assert [digest.hex()[:16] for digest in got] == expected


def wire_hash(digest: bytes) -> int:
    """The digest as vLLM publishes it over ZMQ by default: its low 64 bits as a whole number."""
    return int.from_bytes(digest[-8:], "big")


def test_a_running_server_published_these_numbers() -> None:
    got = request_digests(workload([TOKENS]), 0, 32, upto=2)
    assert [wire_hash(digest) for digest in got] == WIRE


def test_generated_tokens_are_hashed_too() -> None:
    with_output = {"id": "r", "arrive": 0, "prompt": [{"seed": 7, "n": 20}], "output_len": 12, "out_seed": 9}
    written_out = {"id": "r", "arrive": 0, "prompt": [{"seed": 7, "n": 20}, {"seed": 9, "n": 12}], "output_len": 1}
    generated, given = (
        workload(r["prompt"], **{k: r[k] for k in r if k in ("output_len", "out_seed")}) for r in (with_output, written_out)
    )  # type: ignore[arg-type]
    assert request_digests(generated, 0, 16) == request_digests(given, 0, 16)
    assert len(request_digests(generated, 0, 16)) == 2


def test_a_salt_is_in_the_first_block_and_the_chain_carries_it() -> None:
    plain, salted = (Digests(workload(PROMPT, **more), 16) for more in ({}, {"cache_salt": "t1"}))
    assert all(a != b for a, b in zip(plain.of(0), salted.of(0), strict=True))
    assert salted.published_keys(0, 0, 16) == ("t1",)
    assert salted.published_keys(0, 16, 32) is None


def with_images(*images: tuple[int, int, int]) -> Workload:
    return Workload(
        name="images",
        format="golden",
        arrive=np.zeros(1),
        num_prompt=np.array([48], np.int32),
        num_output=np.array([1], np.int32),
        first_run=np.array([0, 2]),
        runs=np.array([(1, 0, 48), (2, 0, 1)], RUN),
        first_image=np.array([0, len(images)]),
        images=np.array(list(images), IMAGE),
        image_identifiers=("cat", "dog"),
    )


def test_images_count_where_they_overlap_with_their_offset() -> None:
    digests = Digests(with_images((0, 10, 30)), 16)
    assert [digests.published_keys(0, at, at + 16) for at in (0, 16, 32)] == [(("cat", 10),), (("cat", -6),), (("cat", -22),)]
    other = Digests(with_images((1, 10, 30)), 16)
    moved = Digests(with_images((0, 20, 20)), 16)
    assert digests.of(0)[0] != other.of(0)[0]
    assert digests.of(0)[1] != moved.of(0)[1]
    assert moved.published_keys(0, 0, 16) is None


def test_older_releases_hash_bare_values() -> None:
    lora = workload(PROMPT, lora={"name": "A", "id": 1})
    elsewhere = workload(PROMPT, lora={"name": "A", "id": 1, "path": "/elsewhere"})
    assert request_digests(lora, 0, 16) != request_digests(elsewhere, 0, 16)
    bare = {"tagged": False, "lora_path": False}
    assert request_digests(lora, 0, 16, **bare) == request_digests(elsewhere, 0, 16, **bare)  # type: ignore[arg-type]


def test_a_name_that_is_also_a_tag_does_not_change_the_pickle() -> None:
    # Pickle would write a reference instead of a second "lora" if both were the same object.
    interned = workload(PROMPT, lora={"name": "lora", "id": 1, "path": "lora"})
    assert request_digests(interned, 0, 16, "sha256") != request_digests(interned, 0, 16, "sha256_cbor")
    again = workload(PROMPT, lora={"name": "".join(["lo", "ra"]), "id": 1, "path": "".join(["lo", "ra"])})
    assert request_digests(interned, 0, 16) == request_digests(again, 0, 16)


def test_only_the_most_recent_requests_are_kept() -> None:
    spec = {
        "name": "many",
        "config": {"num_gpu_blocks": 100},
        "time": {"mode": "step"},
        "requests": [{"id": f"r{i}", "arrive": 0, "prompt": [{"seed": i, "n": 32}], "output_len": 1} for i in range(5)],
    }
    digests = Digests(read_bytes(json.dumps(spec).encode(), "many.json"), 16, keep=2)
    once = [digests.of(i) for i in range(5)]
    assert len(digests._known) == 2
    assert [digests.of(i) for i in range(5)] == once


def test_canonical_cbor_is_cbor2s() -> None:
    rng = random.Random(1)
    edges = [
        0,
        1,
        23,
        24,
        255,
        256,
        65535,
        65536,
        2**32 - 1,
        2**32,
        2**63,
        -1,
        -24,
        -25,
        -256,
        -257,
        -(2**32),
        None,
        "",
        "ä" * 300,
        b"",
        b"\0" * 400,
    ]

    def value(depth: int) -> object:
        if depth == 0 or rng.random() < 0.5:
            return rng.choice(edges)
        return tuple(value(depth - 1) for _ in range(rng.randrange(30)))

    for made in [*edges, *(value(3) for _ in range(300))]:
        assert cbor(made) == cbor2.dumps(made, canonical=True)  # type: ignore[arg-type]


def test_the_root_is_the_recorded_one() -> None:
    assert none_hash("sha256").hex().startswith("066b1e8987e027138e98701c46128929")
    assert none_hash("sha256_cbor").hex().startswith("9bd96a485ad84efdafb72ee48a1d7a69")


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(SettingsError, match="prefix_caching_hash_algo=md5"):
        none_hash("md5")
