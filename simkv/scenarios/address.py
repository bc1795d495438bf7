"""From a variant to what Compare and the command line read: the settings of one as changes of another's."""

from __future__ import annotations

from typing import Any

from simkv.comparison.choices import derived, write_text
from simkv.errors import SimkvError
from simkv.settings import Settings


def changes_between(a: Settings, b: Settings) -> str:
    """The text that makes ``b`` out of ``a`` (the grammar of ``simkv compare``); what follows by itself is not written.

    What B takes over from A but should not have is written too, so that the text is exact: ``derived(a, read_text(text))`` is ``b``.
    """
    mine, theirs = a.to_mapping(), b.to_mapping()
    if a.engine == b.engine:
        changes = {name: theirs[name] for name in theirs if theirs[name] != mine[name]}
    else:
        changes = {"engine": b.engine, **{name: value for name, value in b.changed().items() if name != "engine"}}
    short = _without_carried(a, b, changes)
    if short is not None:
        return write_text(short)
    taken = derived(a, changes)[0].to_mapping()
    return write_text({**changes, **{name: theirs[name] for name in theirs if theirs[name] != taken[name]}})


def _without_carried(a: Settings, b: Settings, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The changes without the size of the pool and what else comes over by itself, if that leads to ``b`` as well."""
    left = dict(changes)
    for name in [n for n in changes if n != "engine"]:
        fewer = {n: v for n, v in left.items() if n != name}
        try:
            if derived(a, fewer)[0] == b:
                left = fewer
        except SimkvError:
            continue
    try:
        return left if derived(a, left)[0] == b else None
    except SimkvError:
        return None
