"""check_integrity(): everything that must hold of a V0 replica between two half turns. For tests and debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import RUNNING, WAITING

if TYPE_CHECKING:
    from simkv.engine.vllm_v0.engine import V0Engine


def check_integrity(engine: V0Engine) -> None:
    """Raise AssertionError with a sentence if the state contradicts itself.

    Blocks: reference counts equal the tables that hold them, on the GPU and in host memory; each free stack holds exactly
    the unreferenced blocks, each once; a swapped group holds no GPU block. Sharing: blocks are shared inside a group only,
    and sequences of a group agree on every block they share. Requests: lists agree with the states, slots are neither lost
    nor used twice.
    """
    e, c, width = engine.state, engine.counters, engine.settings.width
    running, swapped = e.running[: int(c.running)].tolist(), e.swapped[: int(c.swapped)].tolist()
    gpu = _held(engine, running, len(e.ref))
    cpu = _held(engine, swapped, len(e.cpu_ref))
    assert np.array_equal(e.ref, gpu), "reference counts differ from the block tables"
    assert np.array_equal(e.cpu_ref, cpu), "reference counts of host blocks differ from the swapped tables"
    _stack(e.free[: int(c.free)], gpu, 1, "the free stack")
    _stack(e.cpu_free[: int(c.cpu_free)], cpu, 0, "the free stack of host memory")
    assert int(c.held) == int(gpu.sum()), "the count of table entries is off"
    assert int(c.cpu_held) == int(cpu.sum()), "the count of host table entries is off"
    status, at = e.reqs["status"], e.reqs["slot"]
    live = np.sort(e.slots["req"][running + swapped])
    assert np.array_equal(live, np.flatnonzero(status == RUNNING)), "running and swapped lists differ from the states"
    assert all(int(at[e.slots["req"][s]]) == s for s in running + swapped), "a request and its slot disagree"
    assert np.array_equal(np.sort(engine.waiting()), np.flatnonzero(status == WAITING)), "the waiting queue differs from the states"
    assert int(c.unfinished) == len(live) + int(c.wait_len), "the count of unfinished requests is off"
    slots = [*running, *swapped, *e.free_slots[: int(c.free_slots)].tolist()]
    assert sorted(slots) == list(range(len(e.slots))), "slots are lost or used twice"
    assert len(running) * width <= engine.settings.max_num_seqs, "more sequences run than max_num_seqs"


def _held(engine: V0Engine, slots: list[int], blocks: int) -> npt.NDArray[np.int64]:
    """How many tables of these groups hold each block."""
    e, width = engine.state, engine.settings.width
    held = np.zeros(blocks, np.int64)
    owner = np.full(blocks, -1)
    for s in slots:
        n, length = int(e.slots["num_seqs"][s]), int(e.slots["length"][s])
        lanes = e.order[s, :n].tolist()
        assert len(set(lanes)) == n, f"slot {s}: two sequences in one lane"
        assert n in (1, width), f"slot {s}: {n} of {width} sequences"
        rows = [e.tables[s * width + lane, :length] for lane in lanes]
        for row in rows:
            np.add.at(held, row, 1)
            assert len(np.unique(row)) == length, f"slot {s}: a block stands twice in one table"
            assert ((owner[row] == -1) | (owner[row] == s)).all(), f"slot {s}: a block of another group"
            owner[row] = s
        for k in range(length):
            here = {int(row[k]) for row in rows}
            elsewhere = {int(b) for row in rows for j, b in enumerate(row) if j != k}
            assert not here & elsewhere, f"slot {s}: a block at two positions"
    return held


def _stack(stack: npt.NDArray[np.int32], held: npt.NDArray[np.int64], first: int, name: str) -> None:
    unused = np.flatnonzero(held[first:] == 0) + first
    assert np.array_equal(np.sort(stack), unused), f"{name} is not the unreferenced blocks, each once"
