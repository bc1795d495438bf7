"""The six rules' sixth: who may import what. Read from the source, so a lazy import counts as well."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("simkv", "gpu_backend", "kernels")
FILES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py")) + [p for p in [ROOT / "app.py"] if p.exists()]

EVERYWHERE = {"numpy", "numba", "simkv"}
ONLY_IN = {
    "llvmlite": ("simkv/jit.py", "simkv/engine/native.py"),
    "simpy": ("simkv/fleet/",),
    "blake3": ("simkv/fleet/routing/",),
    "xxhash": ("simkv/fleet/routing/",),
    "streamlit": ("simkv/ui/", "app.py"),
    "plotly": ("simkv/ui/", "app.py"),
    "pandas": ("simkv/ui/",),
    "pyarrow": ("simkv/events/export/", "simkv/ui/"),
    "rich": ("simkv/commands/",),
    "playwright": ("simkv/bench/",),
    "tokenizers": ("simkv/workload/",),
    "requests": ("simkv/live/",),
    "zmq": ("simkv/live/",),
    "prometheus_api_client": ("simkv/live/",),
    "torch": ("gpu_backend/", "kernels/"),
    "triton": ("gpu_backend/", "kernels/"),
    "transformers": ("gpu_backend/",),
    "ray": ("simkv/planning/",),
    "gpu_backend": ("gpu_backend/", "simkv/commands/"),
    "kernels": ("gpu_backend/", "kernels/"),
}
LAZY = ("pyarrow", "rich", "playwright", "tokenizers", "ray", "gpu_backend")
"""Imported inside the function that needs them, never when a module is loaded (pages of the app may do as they like)."""

# Data goes one way. A room knows itself, the rooms before it, and errors, plain, memory, settings, jit and text.
FOUNDATION = {"errors", "plain", "memory", "settings", "jit", "text"}
EDGE = {"ui", "commands", "cli", "bench", "__main__"}
FORBIDDEN = {
    "workload": {
        "engine",
        "fleet",
        "events",
        "metrics",
        "conformance",
        "comparison",
        "replay",
        "run_folder",
        "diagnosis",
        "planning",
        "live",
    }
    | EDGE,
    "hardware": {
        "engine",
        "fleet",
        "events",
        "metrics",
        "conformance",
        "comparison",
        "replay",
        "run_folder",
        "diagnosis",
        "planning",
        "live",
    }
    | EDGE,
    "engine": {"fleet", "metrics", "conformance", "comparison", "replay", "run_folder", "diagnosis", "planning", "live"} | EDGE,
    "fleet": {"metrics", "conformance", "comparison", "replay", "run_folder", "diagnosis", "planning", "live"} | EDGE,
    "events": {"engine", "fleet", "metrics", "conformance", "comparison", "replay", "run_folder", "diagnosis", "planning", "live"} | EDGE,
    "metrics": {"engine", "conformance", "comparison", "run_folder"} | EDGE,
    "conformance": {"metrics", "comparison", "run_folder"} | EDGE,
    "replay": {"replay_fleet", "comparison", "run_folder"} | EDGE,
    "replay_fleet": {"comparison", "run_folder"} | EDGE,
    "comparison": {"conformance", "run_folder"} | EDGE,
    "scenarios": {"conformance", "run_folder"} | EDGE,
    "run_folder": EDGE,
    "fleet_folder": EDGE,
    "ui": {"commands", "cli", "bench"},
}
for _rooms in FORBIDDEN.values():  # what may not know the command line may not know scenarios either
    _rooms |= {"scenarios"} if "cli" in _rooms and _rooms is not FORBIDDEN["scenarios"] and _rooms is not FORBIDDEN["ui"] else set()
for _rooms in FORBIDDEN.values():  # what may not know a replay may not know a fleet's either
    _rooms |= {"replay_fleet"} if "replay" in _rooms else set()
    _rooms |= {"fleet_folder"} if "run_folder" in _rooms else set()
EXCEPTIONS = {
    ("hardware", "simkv.engine.profiles"): "how much memory a release takes is part of its profile, which is data",
    ("settings", "simkv.hardware"): "the KV groups of a named model stand in the table of models",
}


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """``(module, line, lazy)`` of every import that happens at run time."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from visit(other, lazy)
                continue
            inside = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(child, ast.Import):
                yield from ((name.name, child.lineno, inside) for name in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno}: relative import"
                yield child.module or "", child.lineno, inside
                yield from ((f"{child.module}.{name.name}", child.lineno, inside) for name in child.names)
            else:
                yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_stay_in_their_rooms(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    wrong = []
    for module, line, lazy in imports(path):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top in EVERYWHERE or top == "__future__":
            continue
        if not where.startswith(ONLY_IN.get(top, ())):
            wrong.append(f"{where}:{line} imports {top}")
        elif top in LAZY and not lazy and not where.startswith("simkv/ui/"):
            wrong.append(f"{where}:{line} imports {top} when it is loaded")
    assert not wrong


@pytest.mark.parametrize("path", [p for p in FILES if p.is_relative_to(ROOT / "simkv")], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_data_goes_one_way(path: Path) -> None:
    parts = path.relative_to(ROOT / "simkv").with_suffix("").parts
    forbidden = FORBIDDEN.get(parts[0], set())
    if parts[0] in FOUNDATION:
        forbidden = {room for rooms in FORBIDDEN.values() for room in rooms} | set(FORBIDDEN)
    wrong = []
    for module, line, _ in imports(path):
        names = module.split(".")
        if any(parts[0] == room and module.startswith(allowed) for room, allowed in EXCEPTIONS):
            continue
        if names[0] == "simkv" and len(names) > 1 and names[1] in forbidden:
            wrong.append(f"simkv/{'/'.join(parts)}.py:{line} imports {module}")
    assert not wrong


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``."""
    script = f"import sys\n{code}\nprint(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_the_core_loads_nothing_of_the_edges() -> None:
    heavy = {"streamlit", "plotly", "pyarrow", "pandas", "rich", "simpy", "torch", "tokenizers", "requests"}
    assert not loaded_by("import simkv, simkv.replay, simkv.cli") & heavy


def test_help_needs_neither_numpy_nor_numba() -> None:
    code = "import simkv.cli\ntry:\n    simkv.cli.main(['--help'])\nexcept SystemExit:\n    pass"
    assert not loaded_by(code) & {"numpy", "numba", "rich", "streamlit"}
