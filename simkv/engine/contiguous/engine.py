"""A replica with contiguous KV memory: runs the compiled loop over its state, grows the logs, shows what it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simkv.engine.contiguous.loop import advance
from simkv.engine.contiguous.state import build
from simkv.engine.contract import GROW
from simkv.engine.vllm.engine import larger
from simkv.engine.vllm.state import empty
from simkv.events.layout import EVENT
from simkv.events.log import EventLog
from simkv.events.packed import spread
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.contiguous.resolve import Resolved


class ContiguousEngine:
    """One replica over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        settings: every setting filled in (resolve.py).
        step_time: ``STEP_TIME[1]``.
        log: write the event log.
        max_events: stop logging (the run goes on without a log) beyond this many events.
    """

    def __init__(
        self, workload: Workload, settings: Resolved, step_time: npt.NDArray[np.void], *, log: bool, max_events: int | None = None
    ) -> None:
        self.workload, self.settings = workload, settings
        self.max_events = max_events
        self.log_dropped = False
        self.config, self.counters, self.state = build(workload, settings, step_time, log, max_events)

    def advance(self, until: float = np.inf, *, pause: bool = False) -> int:
        """Run until virtual time ``until``; the logs grow as needed. Returns a reason of simkv/engine/contract.py."""
        while True:
            why = int(advance(self.state, self.config, self.counters, until, pause))
            if why != GROW:
                return why
            self._grow()

    def _grow(self) -> None:
        e, c, need = self.state, self.counters, int(self.counters.need_events)
        if self.config.log and c.events > self.config.max_events:
            self.config.log = 0
            self.log_dropped = True
            self.state = e._replace(log=empty(1, EVENT), log_blocks=np.zeros(1, np.int32))
        elif self.config.log:
            self.state = e._replace(
                log=larger(e.log, int(c.logged_rows), need), log_blocks=larger(e.log_blocks, int(c.logged_blocks), need)
            )
        steps = larger(e.steps, int(c.logged_steps), 1)
        gaps = larger(e.gaps, int(c.logged_gaps), 2 * int(self.config.max_running))
        self.state = self.state._replace(steps=steps, gaps=gaps)

    @property
    def steps(self) -> npt.NDArray[np.void]:
        """STEP rows so far."""
        return self.state.steps[: int(self.counters.logged_steps)].view(np.ndarray)

    @property
    def gaps(self) -> npt.NDArray[np.void]:
        """GAP rows so far."""
        return self.state.gaps[: int(self.counters.logged_gaps)].view(np.ndarray)

    def event_log(self) -> EventLog | None:
        """The log so far (views, no copies); ``None`` if it is off or was dropped."""
        e, c, s = self.state, self.counters, self.settings
        if not self.config.log:
            return None
        return EventLog(
            rows=e.log[: int(c.logged_rows)].view(np.ndarray).view(EVENT),
            blocks=e.log_blocks[: int(c.logged_blocks)],
            keys=e.log_keys[:0],
            steps=self.steps,
            header={
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
            },
        )

    def mark(self) -> tuple[int, int]:
        """Where the log stands, for ``events_since``."""
        return int(self.counters.logged_rows), int(self.counters.logged_blocks)

    def events_since(self, mark: tuple[int, int]) -> npt.NDArray[np.void]:
        """``EVENT`` rows written since a mark."""
        e, (row, block) = self.state, mark
        rows = e.log[row : int(self.counters.logged_rows)].view(np.ndarray).view(EVENT)
        return spread(rows, e.log_blocks[block : int(self.counters.logged_blocks)])

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
