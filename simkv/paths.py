"""Where what comes with simkv lies: inside the package once installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

from simkv.errors import SimkvError

PACKAGE = Path(__file__).resolve().parent


def _bundled(installed: str, checkout: str) -> Path:
    for path in (PACKAGE / installed, PACKAGE.parent / checkout):
        if path.exists():
            return path
    raise SimkvError(f"this installation of simkv lacks {checkout}: install it again, or run it from a checkout.")


def scenarios() -> Path:
    """Folder of the bundled scenarios and their data."""
    return _bundled("_scenarios", "scenarios")


def app_script() -> Path:
    """The app's entry script."""
    return _bundled("_app/app.py", "app.py")
