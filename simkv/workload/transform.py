"""Workloads made from workloads: salts, the first requests, more copies, other arrival rates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import SettingsError
from simkv.memory import available_bytes
from simkv.workload.bundled import NAMES_OF, bundled
from simkv.workload.workload import ABORT, F8, I4, I8, OUTPUT_SEED, ReadReport, Workload

SALT_MODES = ("keep", "off", "per tenant", "per session")
MOST_REQUESTS = 100_000_000
"""Of a workload made of copies: some 20 GB, and far below where 32-bit numbers of requests end."""
BYTES_OF_AN_ID = 100
"""Roughly, of a Python text and its place in a list."""
_COLUMNS = ("salt", "lora", "priority", "max_new", "ignore_eos", "extra_key", "skip_cache", "tenant", "session", "tie", "after")


def noted(workload: Workload, note: str) -> Workload:
    """The workload with one more sentence in its report."""
    r = workload.report
    return replace(workload, report=ReadReport(r.rows, r.dropped, r.first_dropped, (*r.notes, note)))


def salt_mode(text: str) -> str:
    """One of SALT_MODES, written ``per tenant``, ``per-tenant``, ``per_tenant`` or ``tenant``. Raises SettingsError for others."""
    plain = text.replace("_", " ").replace("-", " ").strip().lower()
    for mode in (plain, f"per {plain}"):
        if mode in SALT_MODES:
            return mode
    raise SettingsError("salts", text, ", ".join(SALT_MODES))


def with_salts(workload: Workload, mode: str) -> Workload:
    """The workload with another ``cache_salt`` policy.

    Args:
        mode: ``keep`` what the source says; ``off``: none, everybody shares; ``per tenant`` or ``per session``: a salt for
            each, so that nothing is shared between them. Requests without a tenant or session stay unsalted.

    Raises:
        SettingsError: unknown mode, or the workload names no tenants or sessions.
    """
    plain = salt_mode(mode)
    if plain == "keep":
        return workload
    if plain == "off":
        return workload if workload.salt is None else replace(workload, salt=None, salts=("",))
    of, names = (workload.tenant, workload.tenants) if plain == "per tenant" else (workload.session, workload.sessions)
    if of is None:
        who = plain.removeprefix("per ")
        known = ", ".join(name for name in NAMES_OF[who] if name in bundled())
        others = f"of the bundled traces {known} do" if known else "none of the bundled traces does"
        hint = f"{workload.name} does not say which {who} a request belongs to; {others}, and every generator does"
        raise SettingsError("salts", mode, "keep or off", hint)
    return replace(workload, salt=np.where(of >= 0, of + 1, 0).astype(np.int32), salts=("", *names))


def limit(workload: Workload, n: int) -> Workload:
    """The first ``n`` requests, with the actions that concern them.

    Raises:
        SettingsError: ``n`` is below 1.
    """
    if n < 1:
        raise SettingsError("limit", n, "a whole number of at least 1")
    if n >= len(workload):
        return workload
    w, end = workload, int(workload.first_run[n])
    images: dict[str, Any] = (
        {} if w.first_image is None else {"first_image": w.first_image[: n + 1], "images": w.images[: int(w.first_image[n])]}
    )
    columns: dict[str, Any] = {name: getattr(w, name)[:n] for name in _COLUMNS if getattr(w, name) is not None}
    actions = w.actions[(w.actions["op"] != ABORT) | (w.actions["req"] < n)]
    short = replace(
        w,
        arrive=w.arrive[:n],
        num_prompt=w.num_prompt[:n],
        num_output=w.num_output[:n],
        first_run=w.first_run[: n + 1],
        runs=w.runs[:end],
        ids=None if w.ids is None else w.ids[:n],
        actions=actions,
        **columns,
        **images,
    )
    return noted(short, f"Only the first {n:,} of {len(w):,} requests.")


def stretch(workload: Workload, factor: float) -> Workload:
    """The same requests ``factor`` times as slowly (0.5 doubles the rate). Pauses after an answer stay as they are.

    Raises:
        SettingsError: the factor is not a positive number.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise SettingsError("stretch", factor, "a number above 0")
    w = workload
    chained = np.zeros(len(w), np.bool_) if w.after is None else w.after >= 0
    actions = w.actions.copy()
    actions["at"] *= factor
    slower = replace(
        w,
        arrive=np.where(chained, w.arrive, w.arrive * factor),
        tie=None if w.tie is None else w.tie * factor,
        actions=actions,
    )
    return noted(slower, f"Arrivals stretched by {factor:g}.")


def repeat(workload: Workload, times: int) -> Workload:
    """The workload ``times`` times over, one copy after the other in time, each with contents of its own: copies share nothing.

    A copy begins one mean gap after the last known arrival of the copy before.

    Raises:
        SettingsError: ``times`` below 1; more requests than fit in memory; or so many contents that they cannot be numbered
            below ``OUTPUT_SEED``.
    """
    if times < 1:
        raise SettingsError("copies", times, "a whole number of at least 1")
    if times == 1 or len(workload) == 0:
        return workload
    _check_room(workload, times)
    w, n = workload, len(workload)
    copy = np.repeat(np.arange(times, dtype=np.int64), n)
    period = _period(w)
    runs, tokens = _runs(w, times)
    chained = np.zeros(n, np.bool_) if w.after is None else w.after >= 0
    columns: dict[str, Any] = {name: np.tile(getattr(w, name), times) for name in _COLUMNS if getattr(w, name) is not None}
    if w.after is not None:
        columns["after"] = np.where(columns["after"] >= 0, columns["after"] + copy * n, -1).astype(np.int32)
    if w.tie is not None:
        columns["tie"] = columns["tie"] + copy * period
    sessions = w.sessions
    if w.session is not None:
        moved = columns["session"] + copy * len(w.sessions)
        columns["session"] = np.where(columns["session"] >= 0, moved, -1).astype(np.int32)
        sessions = tuple(_named(name, k) for k in range(times) for name in w.sessions)
    images: dict[str, Any] = {}
    if w.first_image is not None:
        images = {"first_image": _offsets(w.first_image, times), "images": np.tile(w.images, times)}
    actions = np.tile(w.actions, times).copy()
    which = np.repeat(np.arange(times, dtype=np.int64), len(w.actions))
    actions["at"] += which * period
    actions["req"] = np.where(actions["op"] == ABORT, actions["req"] + which * n, actions["req"])
    longer = replace(
        w,
        name=f"{w.name} x {times}",
        arrive=np.tile(w.arrive, times) + np.where(np.tile(chained, times), 0.0, copy * period),
        num_prompt=np.tile(w.num_prompt, times),
        num_output=np.tile(w.num_output, times),
        first_run=_offsets(w.first_run, times),
        runs=runs,
        tokens=tokens,
        ids=None if w.ids is None else [_named(name, k) for k in range(times) for name in w.ids],
        sessions=sessions,
        actions=actions,
        **columns,
        **images,
    )
    return noted(longer, f"The same requests {times:,} times over, each copy with contents of its own.")


def _check_room(w: Workload, times: int) -> None:
    n, room = len(w), available_bytes()
    size = sum(v.nbytes for v in vars(w).values() if isinstance(v, np.ndarray)) + (0 if w.ids is None else BYTES_OF_AN_ID * n)
    most = MOST_REQUESTS // n
    hint = f"A workload has at most {MOST_REQUESTS:,} requests"
    if room is not None and room // (2 * size) < most:  # twice: copies are put together from parts
        most = room // (2 * size)
        hint = f"{times * n:,} requests would need {2 * size * times / 1e9:,.1f} GB of memory, and {room / 1e9:,.1f} GB are available"
    if times > max(most, 1):
        raise SettingsError("copies", times, f"at most {max(most, 1):,} of {n:,} requests", hint)


def _named(name: str, k: int) -> str:
    return f"{name}#{k + 1}" if k else name


def _period(w: Workload) -> float:
    known: F8 = w.arrive if w.after is None else w.arrive[w.after < 0]
    last = float(known.max()) if len(known) else 0.0
    if w.step_time.get("mode") == "step":
        return math.floor(last) + 1.0
    return last + (last - float(known.min())) / max(len(known) - 1, 1) if len(known) else 0.0


def _offsets(first: I8, times: int) -> I8:
    size = first[-1]
    return np.append(np.concatenate([first[:-1] + k * size for k in range(times)]), times * size).astype(np.int64)


def _runs(w: Workload, times: int) -> tuple[npt.NDArray[np.void], I4]:
    """Runs of all copies, and the token ids they point to.

    Outputs named after their request are named after the copy's request; contents below OUTPUT_SEED are renumbered
    behind the largest; written-out token ids move up by a whole vocabulary.
    """
    n, seed = len(w), w.runs["seed"]
    runs = np.tile(w.runs, times)
    own_output = (seed >= OUTPUT_SEED) & (seed < OUTPUT_SEED + n)
    moves = np.where(own_output, n, 0).astype(np.int64)
    tokens = w.tokens
    named = (seed >= 0) & ~own_output
    contents, rank = np.unique(seed[named], return_inverse=True)
    below = contents[contents < OUTPUT_SEED]
    base = int(below.max()) + 1 if len(below) else 0
    mixed = own_output.any() and len(below) < len(contents)
    if mixed or base + (times - 1) * len(contents) > OUTPUT_SEED:
        if times * len(contents) > OUTPUT_SEED:
            most = OUTPUT_SEED // len(contents)
            raise SettingsError("copies", times, f"at most {most} copies of {len(contents):,} contents")
        runs["seed"][: len(seed)][named] = rank
        contents = np.arange(len(contents))
        base = len(contents)
    for k in range(1, times):
        part = runs["seed"][k * len(seed) : (k + 1) * len(seed)]
        part[named] = base + (k - 1) * len(contents) + rank
    if len(tokens):
        step = int(tokens.max()) + 1
        if times * step >= 2**31:
            raise SettingsError("copies", times, f"at most {(2**31 - 1) // step} copies with token ids up to {step - 1:,}")
        moves = moves - np.where(seed < 0, len(tokens), 0)
        tokens = np.concatenate([tokens + np.int32(k * step) for k in range(times)])
    for k in range(1, times):
        runs["seed"][k * len(seed) : (k + 1) * len(seed)] += k * moves
    return runs, tokens
