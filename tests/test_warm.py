"""Compiling beforehand covers every engine, and a part that fails is not taken for compiled."""

from __future__ import annotations

import subprocess

import pytest

from simkv import warm
from simkv.engine.engines import is_compiled
from simkv.settings import ENGINES, settings_class


def test_every_engine_has_a_small_pool() -> None:
    assert set(warm.TINY_POOL) == set(ENGINES)
    assert set(warm.everything()) == {*ENGINES, warm.FOLDS}
    assert warm.everything()[: len(warm.FIRST)] == warm.FIRST
    for engine, values in warm.TINY_POOL.items():
        settings_class(engine).from_mapping(values)


def test_parts_are_compiled_by_processes_of_their_own() -> None:
    assert warm.warm((warm.FOLDS, "contiguous")) > 0
    assert is_compiled("contiguous")


def test_a_part_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        warm.warm(("no such engine",))
    assert "no such engine" in capfd.readouterr().err
