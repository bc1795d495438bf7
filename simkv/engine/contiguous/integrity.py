"""check_integrity(): everything that must hold of a contiguous replica between two turns. For tests and debugging."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from simkv.engine.contract import RUNNING, WAITING

if TYPE_CHECKING:
    from simkv.engine.contiguous.engine import ContiguousEngine


def check_integrity(engine: ContiguousEngine) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself.

    Memory: pieces cover the pool without gap or overlap, free + held = pool; the lists hold every free piece once and by
    address; buddy pieces are aligned powers of two and no two free halves of one piece stay apart; no two holes of first
    fit touch. Requests: each held piece is one slot's and big enough for what is written; the lists agree with the states.
    Host memory: what is there is what swapped and moving requests have computed, and it fits.
    """
    _memory(engine)
    _free_lists(engine)
    _slots(engine)
    _requests(engine)


def _memory(engine: ContiguousEngine) -> None:
    c, s, pieces = engine.counters, engine.config, engine.pieces()
    end = 0
    for a, n, _ in pieces:
        assert a == end, f"cell {a}: a gap or an overlap"
        end = a + n
    assert end == s.cells, "the pieces do not cover the pool"
    free = sum(n for _, n, owner in pieces if owner < 0)
    assert int(c.free) == free, "the number of free cells is off"
    assert int(c.held) == s.cells - free, "free + held is not the pool"
    if s.buddy:
        whole = {(a, n) for a, n, owner in pieces if owner < 0}
        for a, n, _ in pieces:
            assert n & (n - 1) == 0, f"cell {a}: a piece of {n} cells is no power of two"
            assert a % n == 0, f"cell {a}: a piece of {n} cells is not aligned"
        assert not any((a ^ n, n) in whole for a, n in whole), "two free halves of one piece stay apart"
    else:
        owners = [owner for _, _, owner in pieces]
        assert not any(x < 0 and y < 0 for x, y in pairwise(owners)), "two holes touch"


def _free_lists(engine: ContiguousEngine) -> None:
    cells, listed = engine.state.cells, []
    for k, a in enumerate(engine.state.heads.tolist()):
        before = -1
        while a >= 0:
            assert a > before, f"list {k} is not in order of address"
            assert not engine.config.buddy or cells[a].span == 1 << k, f"cell {a} is in the list of another size"
            listed.append(a)
            before, a = a, int(cells[a].next)
    assert sorted(listed) == [a for a, _, owner in engine.pieces() if owner < 0], "the lists are not the free pieces"


def _slots(engine: ContiguousEngine) -> None:
    e, c, cell = engine.state, engine.counters, int(engine.config.cell)
    held = np.flatnonzero(e.slots["req"] >= 0).tolist()
    free = e.free_slots[: int(c.free_slots)].tolist()
    assert sorted([*held, *free]) == list(range(len(e.slots))), "slots are lost or used twice"
    leaving = _ring(e.leaving, int(c.out_head), int(c.out_len))
    returning = _ring(e.returning, int(c.in_head), int(c.in_len))
    assert sorted([*e.running[: int(c.running)].tolist(), *leaving, *returning]) == held, "a slot neither runs nor moves, or both"
    for s in held:
        slot = e.slots[s]
        assert e.cells[slot.at].owner == slot.req + 1, f"slot {s}: its piece is another's"
        assert slot.computed <= e.cells[slot.at].span * cell, f"slot {s}: more written than reserved"
        assert e.reqs[slot.req].slot == s, f"slot {s}: its request does not know it"
        assert e.reqs[slot.req].status == RUNNING, f"slot {s}: its request is not running"
    owners = sorted(owner for _, _, owner in engine.pieces() if owner >= 0)
    assert owners == sorted(e.slots["req"][held].tolist()), "a piece without a slot"
    moving = sum(int(e.slots[s].computed) for s in [*leaving, *returning])
    swapped = int(e.reqs["computed"][e.reqs["status"] == WAITING].sum())
    assert int(c.host_used) == moving + swapped, "host memory is not what has been moved there"
    assert 0 <= c.host_used <= max(int(engine.config.host_tokens), 0), "host memory overflows"


def _requests(engine: ContiguousEngine) -> None:
    e, c = engine.state, engine.counters
    status, waiting = e.reqs["status"], engine.waiting()
    assert sorted(waiting) == np.flatnonzero(status == WAITING).tolist(), "the waiting queue differs from the states"
    assert int(c.unfinished) == len(waiting) + int(np.count_nonzero(status == RUNNING)), "the count of unfinished requests is off"
    if engine.config.static:
        members = e.slots[e.running[: int(c.running)]]
        assert int(c.batch_left) == int(np.count_nonzero(members["ended"] == 0)), "the count of members still generating is off"


def _ring(ring: np.ndarray, head: int, n: int) -> list[int]:
    return [int(ring[(head + i) % len(ring)].slot) for i in range(n)]
