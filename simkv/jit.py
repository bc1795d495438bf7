"""The one place that knows how hot functions are compiled.

* ``_nrt=False``: the core allocates nothing, so reference counting of arrays is switched off (5 times faster).
* numba's cache does not notice a change in a callee's file, so the cache folder is named after a digest of every
  file of the package, of numba's version and of the bounds-check flag.
* ``NUMBA_DISABLE_JIT=1`` runs the same functions interpreted (debugger, coverage).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import config as numba_config
from numba.core import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

config: Any = numba_config
njit: Any = numba.njit
"""numba ships types, but not for underscore options and for settings that are made at run time."""

HERE = Path(__file__).resolve().parent
STALE_AFTER_S = 30 * 24 * 3600.0
_cache_of: dict[Path, Path] = {}


def cache_root() -> Path:
    """Folder of compiled code: ``$SIMKV_CACHE``, else ``$XDG_CACHE_HOME/simkv``, else ``~/.cache/simkv``."""
    if given := os.environ.get("SIMKV_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "simkv"


def _digest(files: list[Path]) -> str:
    h = hashlib.sha256()
    for p in sorted(files):
        h.update(p.name.encode() + b"\0" + p.read_bytes())
    h.update(f"{numba.__version__} {config.BOUNDSCHECK}".encode())
    return h.hexdigest()[:16]


def decorators(package: Path, *more: Path) -> tuple[Decorator[Any], Decorator[Any], Decorator[Any], Decorator[Any]]:
    """``(entry, splice, kernel, inline)`` for the functions of one package.

    ``entry``: called from Python; the only ones with a Python wrapper and a place in the cache, whose object code holds
    all they call. ``splice``: big, with one caller, and compiled as part of it (a function of its own would be optimised
    and turned into machine code again at every level above). ``kernel``: called by compiled code from several places.
    ``inline``: small helpers. Wrappers only for entries, and splicing, cut the compile time to a third.

    Args:
        package: the folder whose ``*.py`` files call each other.
        more: further files whose constants or functions they use.
    """
    cache = cache_root() / f"{package.name}-{_digest([*package.glob('*.py'), *more, HERE / 'jit.py'])}"
    _cache_of[package] = cache

    def make(**options: Any) -> Decorator[Any]:
        def decorate(function: Any) -> Any:
            before, config.CACHE_DIR = config.CACHE_DIR, str(cache)
            try:
                return njit(error_model="numpy", _nrt=False, **options)(function)
            finally:
                config.CACHE_DIR = before

        return decorate

    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return make(cache=not config.DISABLE_JIT, nogil=True), make(inline="always"), make(**bare), make(forceinline=True, **bare)


def record(*fields: tuple[str, str] | tuple[str, str, tuple[int, ...]], align: bool = False) -> np.dtype[Any]:
    """A structured type for plain arrays whose elements are records: ``array[i].field`` works interpreted as well.

    Calls from Python are given such arrays; handing over a recarray takes 2 µs more.
    """
    return np.dtype((np.record, np.dtype(list(fields), align=align)))


def is_warm(package: Path) -> bool:
    """Whether compiled code of this package, as it is now, lies on disk (else the first use compiles for 10 to 20 s)."""
    return any(_cache_of[package].glob("**/*.nbc"))


def note_compiled(package: Path, part: str) -> None:
    """Remember that all of a specialisation's code lies on disk (numba's files do not say what they are for)."""
    with contextlib.suppress(OSError):  # only a convenience: an unwritable cache compiles again
        _cache_of[package].mkdir(parents=True, exist_ok=True)
        (_cache_of[package] / f"{part}.done").touch()


def noted_compiled(package: Path, part: str) -> bool:
    """Whether ``note_compiled`` was called for this package as it is now."""
    return (_cache_of[package] / f"{part}.done").exists() and is_warm(package)


def prune_stale() -> int:
    """Delete compiled code of older versions, unused for 30 days. Returns how many folders went."""
    gone, root = 0, cache_root()
    if not root.is_dir():
        return 0
    for folder in root.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > STALE_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)
            gone += 1
    return gone


@intrinsic
def _compiled_prefetch(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flag, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag]))
        write, keep, data = flag(1), flag(3), flag(1)
        builder.call(function, [builder.inttoptr(args[0], pointer), write, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _no_prefetch(address: int) -> None:
    pass


prefetch: Any = _no_prefetch if config.DISABLE_JIT else _compiled_prefetch
"""``prefetch(address)``: the processor may begin to fetch what stands there, which will soon be written."""
