"""An SGLang replica: runs the compiled loop over its state, grows the logs, shows what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import GROW
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.integrity import check_integrity
from simkv.engine.sglang.loop import advance
from simkv.engine.sglang.state import build, empty, namespaces
from simkv.events.layout import EVENT
from simkv.events.log import EventLog
from simkv.events.packed import spread
from simkv.workload.workload import Workload


class SglangEngine:
    """One replica of SGLang's scheduler and radix cache over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        config: every number filled in.
        step_time: ``STEP_TIME[1]``.
        log: write the event log.
        max_events: stop logging (the run goes on without a log) beyond this many events.
        settings: the resolved settings the config was made from, for who asks the engine.
    """

    def __init__(
        self,
        workload: Workload,
        config: SglangConfig,
        step_time: npt.NDArray[np.void],
        *,
        log: bool,
        max_events: int | None = None,
        settings: Any = None,
    ) -> None:
        self.workload, self.choices, self.settings = workload, config, settings
        self.max_events = max_events
        self.log_dropped = False
        self.names = namespaces(workload)[1]
        self.config, self.counters, self.state = build(workload, config, step_time, log, max_events)

    def advance(self, until: float = np.inf, *, pause: bool = False) -> int:
        """Run until virtual time ``until``; the logs grow as needed. Returns one of the reasons in simkv/engine/contract.py."""
        while True:
            why = int(advance(self.state, self.config, self.counters, until, pause))
            if why != GROW:
                return why
            self._grow()

    def _grow(self) -> None:
        e, c = self.state, self.counters
        if self.config.log and c.events > self.config.max_events:
            self.config.log = 0
            self.log_dropped = True
            e = e._replace(log=empty(1, EVENT), log_blocks=np.zeros(1, np.int32), log_keys=np.zeros(1, np.uint64))
        elif self.config.log:
            e = e._replace(
                log=_larger(e.log, int(c.logged_rows), int(c.need_rows)),
                log_blocks=_larger(e.log_blocks, int(c.logged_blocks), int(c.need_blocks)),
                log_keys=_larger(e.log_keys, int(c.logged_keys), int(c.need_keys)),
            )
        steps = _larger(e.steps, int(c.logged_steps), 1)
        gaps = _larger(e.gaps, int(c.logged_gaps), 2 * int(self.config.max_running))
        self.state = e._replace(steps=steps, gaps=gaps)

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
        e, c, s = self.state, self.counters, self.choices
        if not self.config.log:
            return None
        return EventLog(
            rows=e.log[: int(c.logged_rows)].view(np.ndarray).view(EVENT),
            blocks=e.log_blocks[: int(c.logged_blocks)],
            keys=e.log_keys[: int(c.logged_keys)],
            steps=self.steps,
            header={
                "engine": "sglang",
                "engine_version": "0.5.23",
                "num_blocks": int(self.config.num_pages) + 1,
                "block_size": s.page_size,
                "groups": [{"type": "full", "window": None, "block_size": s.page_size}],
                "hash_block_size": s.page_size,
                "scheduler_block_size": s.page_size,
                "enable_prefix_caching": not s.disable_radix_cache,
                "evicted_to_front": s.page_size > 1,
                "max_blocks_per_request": int(self.config.row_pages),
                "max_live_requests": len(e.rows) + 1,
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

    def free_queue(self) -> npt.NDArray[np.int32]:
        """Page ids in the free list, head (next to be taken) first."""
        e, c = self.state, self.counters
        places = (int(c.free_head) + np.arange(int(c.free_len))) & (len(e.free) - 1)
        out: npt.NDArray[np.int32] = e.free[places]
        return out

    def waiting(self) -> list[int]:
        """Requests in the waiting queue, head first."""
        first = int(self.counters.wait_head)
        queued: list[int] = self.state.queue["waiting"][first : first + int(self.counters.wait_len)].tolist()
        return queued

    def generated(self) -> npt.NDArray[np.int32]:
        """Tokens generated per request so far, shape ``[n]``."""
        out: npt.NDArray[np.int32] = self.state.reqs["generated"].copy()
        return out

    def check_integrity(self) -> None:
        """Raise AssertionError if tree, pool, rows and lists contradict each other."""
        check_integrity(self.state, self.config, self.counters)

    def why_stalled(self) -> str:
        """After ``advance`` returned STALLED: what hangs and what helps, in words."""
        c, s = self.counters, self.choices
        if c.failed:
            return f"The pool of {s.capacity:,} tokens ran out in the middle of an allocation; SGLang would stop here with an error."
        return (
            f"Nothing can be scheduled any more: {int(c.wait_len)} requests wait, none runs, and the first needs more than the pool's"
            f" {s.capacity:,} tokens (prompt, output up to 4096 tokens and a page must fit). SGLang would wait for ever. Give it a"
            " bigger pool or shorter requests."
        )


def _larger(array: Any, used: int, need: int) -> Any:
    """The array if ``need`` more fit, else a copy of twice the length or more."""
    if used + need <= len(array):
        return array
    out = np.empty(max(len(array) * 2, used + need + len(array) // 2), array.dtype)
    out[:used] = array[:used]
    return out.view(np.recarray) if array.dtype.names else out
