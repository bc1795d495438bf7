"""Writing a file so that a reader never sees half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from simkv.errors import InputError


@contextmanager
def partial(target: Path) -> Iterator[Path]:
    """A path beside ``target`` to write to; it takes the target's place at the end, and is removed on an error."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, target)
    except OSError as e:
        raise InputError(f"cannot be written ({e.strerror or e})", file=str(target), hint="Check the folder and the free space") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def replacing(target: Path) -> Iterator[IO[str]]:
    """A text file to write, in UTF-8; see ``partial``."""
    with partial(target) as part, part.open("w", encoding="utf-8", newline="\n") as out:
        yield out
