"""Compiling beforehand covers every engine, and a part that fails is not taken for compiled."""

from __future__ import annotations

import subprocess

import pytest

from simkv import warm
from simkv.engine.engines import is_compiled
from simkv.settings import ENGINES, settings_class


def test_every_engine_has_a_small_pool() -> None:
    assert {part.partition("+")[0] for part in warm.TINY_POOL} == set(ENGINES)
    assert set(warm.everything()) == {*warm.TINY_POOL, warm.FOLDS, warm.FLEET}
    assert warm.everything()[: len(warm.FIRST)] == warm.FIRST
    for part, values in warm.TINY_POOL.items():
        assert settings_class(part.partition("+")[0]).from_mapping(values).compiled_as == part


def test_parts_are_compiled_by_processes_of_their_own() -> None:
    assert warm.warm((warm.FOLDS, "contiguous")) > 0
    assert is_compiled("contiguous")


def test_a_part_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        warm.warm(("no such engine",))
    assert "no such engine" in capfd.readouterr().err
