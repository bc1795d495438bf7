"""The scenarios that come with simkv: one TOML file each, beside the bundled traces."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from simkv.errors import InputError
from simkv.scenarios.load import GROUPS, read_scenario
from simkv.scenarios.scenario import Scenario
from simkv.workload.bundled import data_folder


def scenario_files() -> dict[str, Path]:
    """Name and file of every scenario, by name."""
    folder = data_folder()
    return {} if folder is None else {path.stem: path for path in sorted(folder.parent.glob("*.toml"))}


def scenario_names() -> list[str]:
    """All names."""
    return list(scenario_files())


@cache
def scenarios() -> tuple[Scenario, ...]:
    """All scenarios in the order of the gallery. Raises InputError for a file that cannot be used."""
    found = [read_scenario(path) for path in scenario_files().values()]
    return tuple(sorted(found, key=lambda s: (GROUPS.index(s.group), s.name)))


def find_scenario(name: str) -> Scenario:
    """One scenario by name, hyphens or underscores; a unique beginning is enough. Raises InputError if there is none."""
    wanted = name.strip().casefold().replace("-", "_").replace(" ", "_")
    files = scenario_files()
    near = [wanted] if wanted in files else [known for known in files if known.startswith(wanted)]
    if len(near) == 1:
        return read_scenario(files[near[0]])
    if len(near) > 1:
        raise InputError(f"{name} may be " + " or ".join(near), field="SCENARIO", hint="Write a few letters more")
    guess = difflib.get_close_matches(wanted, files, n=1, cutoff=0.4)
    hint = f"Did you mean {guess[0]}?" if guess else "`simkv scenarios` lists them"
    raise InputError(f"there is no scenario {name}", field="SCENARIO", expected="one of " + ", ".join(files), hint=hint)
