"""A replica with contiguous KV memory: runs the compiled loop over its state, grows the logs, shows what it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contiguous.loop import advance
from simkv.engine.contiguous.state import build
from simkv.engine.replica import Replica
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.contiguous.resolve import Resolved


class ContiguousEngine(Replica):
    """One replica over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        settings: every setting filled in (resolve.py).
        step_time: ``STEP_TIME[1]``.
        log: write the event log.
        max_events: stop logging (the run goes on without a log) beyond this many events.
    """

    loop = staticmethod(advance)

    def __init__(
        self, workload: Workload, settings: Resolved, step_time: npt.NDArray[np.void], *, log: bool, max_events: int | None = None
    ) -> None:
        self.workload, self.settings = workload, settings
        self.max_events = max_events
        self.config, self.counters, self.state = build(workload, settings, step_time, log, max_events)

    def log_room(self) -> tuple[int, int, int]:
        """Nothing is cached, so there are no keys."""
        need = int(self.counters.need_events)
        return need, need, 0

    def log_header(self) -> dict[str, Any]:
        """What a fold must know of the engine."""
        s = self.settings
        return {
            "engine": "contiguous",
            "engine_version": s.version,
            "num_blocks": s.num_gpu_blocks,
            "block_size": s.block_size,
            "groups": [{"type": "full", "window": None, "block_size": s.block_size}],
            "hash_block_size": s.block_size,
            "scheduler_block_size": s.block_size,
            "enable_prefix_caching": False,
            "reserves": True,
            "max_blocks_per_request": s.largest_piece,
            "max_live_requests": s.max_running,
            "requests": len(self.workload),
        }

    def pieces(self) -> list[tuple[int, int, int]]:
        """``(first cell, cells, request)`` of every piece in order of address; request -1 is free."""
        cells = self.state.cells
        return [(int(a), int(cells[a].span), int(cells[a].owner) - 1) for a in np.flatnonzero(cells["span"])]

    def free_queue(self) -> npt.NDArray[np.int32]:
        """Block ids (cell + 1) of the free cells in order of address. There is no queue: place decides, not age."""
        free = [np.arange(a + 1, a + n + 1, dtype=np.int32) for a, n, owner in self.pieces() if owner < 0]
        return np.concatenate([np.zeros(0, np.int32), *free])

    def waiting(self) -> list[int]:
        """Requests in the waiting queue, head first; swapped ones among them."""
        e, n = self.state, int(self.counters.wait_len)
        places = (int(self.counters.wait_head) + np.arange(n)) & (len(e.queue) - 1)
        return [int(r) for r in e.queue["waiting"][places]]

    def generated(self) -> npt.NDArray[np.int32]:
        """Tokens generated per request so far, shape ``[n]``."""
        e = self.state
        out: npt.NDArray[np.int32] = e.reqs["generated"].copy()
        held = e.slots[e.slots["req"] >= 0]
        out[held["req"]] = held["num_tokens"] - held["num_prompt"]
        return out

    def check_integrity(self) -> None:
        """Raise AssertionError if the state contradicts itself (see integrity.py)."""
        from simkv.engine.contiguous.integrity import check_integrity

        check_integrity(self)

    def remarks(self) -> list[str]:
        """What only these baselines do, in words: padding of static batches, sequences moved to host memory."""
        c, out = self.counters, []
        if self.config.static:
            done = int(c.tokens + c.padding)
            share = f", {int(c.padding) / done:.1%} of all that was computed" if done else ""
            out.append(f"Static batches computed {int(c.padding):,} tokens of padding{share}.")
        if self.config.swap:
            out.append(
                f"Whole sequences moved to host memory: {int(c.preemptions):,} ({int(c.swapped_tokens):,} tokens of states);"
                f" back: {int(c.swap_ins):,}."
            )
        return out

    def why_stalled(self) -> str:
        """What hangs, in words, after ``advance`` returned STALLED."""
        c, s = self.counters, self.settings
        return (
            f"Nothing can be scheduled any more: {int(c.wait_len)} requests wait, none runs, and the first finds no unbroken piece in"
            f" {int(c.free):,} free cells of {s.block_size} tokens. Give it more memory or shorter requests."
        )
