"""Turns of many replicas inside one compiled call: all up to a moment, or one after the other in order of time.

A replica is a PLACE: how to call its loop (simkv/engine/native.py) and where a few of its counters lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simkv import jit
from simkv.engine.contract import CRASHED, GROW, PROCESSED, SCHEDULED, UNTIL
from simkv.engine.native import call_at
from simkv.fleet.kv.address import array_at

_ENGINE = Path(__file__).parent.parent / "engine"
entry, _, _, inline = jit.decorators(
    Path(__file__).parent, _ENGINE / "contract.py", _ENGINE / "native.py", Path(__file__).parent / "kv" / "address.py"
)

WATCHED = ("next_turn", "timers", "finished", "aborted", "rejected")
PLACE = np.dtype(
    [
        ("code", "u8"),  # 0: nobody lives here
        ("image", "u8"),
        *((name, "u8") for name in WATCHED),  # addresses of these counters
        ("known", "i8"),  # ``timers`` as of its last call; -1: it must be called
        ("reason", "i8"),
    ]
)
NOBODY, AGAIN = -1, -2
F8: Any = np.dtype(np.float64) if jit.config.DISABLE_JIT else np.float64
I8: Any = np.dtype(np.int64) if jit.config.DISABLE_JIT else np.int64


@inline
def counter(address):
    return array_at(address, 1, I8)[0]


@inline
def begins(p):
    """When the replica's next turn begins, as of its last call; infinity if it has none to come."""
    return array_at(p.next_turn, 1, F8)[0]


@inline
def run(p, until, pause):
    """Call the loop; note what it said. Returns whether that is a reason of contract.py that needs nothing from Python."""
    p.reason = call_at(p.code, p.image, until, pause)
    p.known = counter(p.timers)
    return p.reason != GROW and UNTIL <= p.reason <= CRASHED


@inline
def ended(p):
    return counter(p.finished) + counter(p.aborted) + counter(p.rejected)


@entry
def advance_all(places, first, last, until):
    """All turns of ``places[first:last]`` that begin by ``until``. Returns the first place that needs Python, else -1."""
    for slot in range(first, last):
        p = places[slot]
        if p.code == 0 or (counter(p.timers) == p.known and begins(p) > until):
            continue
        if not run(p, until, False):
            return slot
    return NOBODY


@entry
def ask_all(places):
    """Learn when everybody's next turn begins; returns the earliest such moment, infinity if there is none."""
    earliest = np.inf
    for slot in range(places.size):
        p = places[slot]
        if p.code == 0:
            continue
        if counter(p.timers) != p.known:
            run(p, -np.inf, False)
        if p.reason == UNTIL:
            earliest = min(earliest, begins(p))
    return earliest


@entry
def take_turns(places, until, to_an_end):
    """One turn of the replica whose next begins earliest by ``until``; or such turns until a request ends somewhere.

    Everybody was asked. Returns the last place that took one, -1 if none did, or -2 - place where Python is needed first.
    """
    last = NOBODY
    while True:
        first = NOBODY
        for slot in range(places.size):
            p = places[slot]
            if p.code != 0 and p.reason == UNTIL and begins(p) <= until and (first < 0 or begins(p) < begins(places[first])):
                first = slot
        if first < 0:
            return last
        p = places[first]
        before = ended(p)
        good = run(p, until, True)
        if good and p.reason == SCHEDULED:
            good = run(p, until, True)
        if not good:
            return AGAIN - first
        if p.reason == PROCESSED:
            run(p, -np.inf, False)
        last = first
        if not to_an_end or ended(p) != before:
            return last
