"""What all tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def compiled() -> None:
    """The engine is compiled and on disk, so that a subprocess with a time limit does not wait for it."""
    from simkv.warm import warm

    warm()
