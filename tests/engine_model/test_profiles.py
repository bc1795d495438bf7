"""Engine versions: which row a version gets, and what the rows say."""

from __future__ import annotations

import pytest

from simkv.engine.profiles import profile, profiles
from simkv.errors import SettingsError


@pytest.mark.parametrize(
    ("asked", "row"),
    [("0.32.0", "0.32"), ("0.32", "0.32"), ("v0.25.1", "0.25"), ("0.24.0", "0.23"), ("0.30", "0.29"), ("0.29.0rc1", "0.29"),
     ("0.10.2+cu128", "0.10"), ("0.12", "0.10"), ("0.33.1", "0.32"), ("1.0", "0.32"), (" 0.18.1 ", "0.18")],
)  # fmt: skip
def test_newest_profile_that_is_not_newer(asked: str, row: str) -> None:
    assert profile(asked).version == row


@pytest.mark.parametrize("asked", ["0.9.2", "0.8", "", "latest", "0", "0.x", "-1.0"])
def test_unknown_versions_list_the_known(asked: str) -> None:
    with pytest.raises(SettingsError, match=r"engine_version=.*0\.10, 0\.13, .*0\.32"):
        profile(asked)


def column(name: str) -> dict[str, object]:
    return {p.version: getattr(p, name) for p in profiles()}


def test_the_table() -> None:
    versions = [p.version for p in profiles()]
    assert versions == ["0.10", "0.13", "0.16", "0.18", "0.20", "0.22", "0.23", "0.25", "0.27", "0.29", "0.31", "0.32"]

    def since(first: str) -> dict[str, object]:
        return {v: i >= versions.index(first) for i, v in enumerate(versions)}

    assert column("split_preempted") == since("0.13")
    assert column("async_default") == since("0.16")
    assert column("cuda_graphs_reserved") == since("0.22")
    assert column("unhashed_to_front") == column("watermark") == column("events_as_maps") == since("0.25")
    assert column("stats_at_lookup") == {v: not new for v, new in since("0.27").items()}
    assert column("fixed_none_hash") == since("0.29")
    assert column("tagged_extra_keys") == column("lora_path_in_key") == since("0.31")
    assert column("reserve_full_isl") == {v: True if new else None for v, new in since("0.20").items()}
    assert column("gpu_memory_utilization") == {v: 0.92 if new else 0.9 for v, new in since("0.20").items()}
    assert column("caching_off_to_front") == {**since("0.25"), "0.27": False}
