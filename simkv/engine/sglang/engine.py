"""An SGLang replica: runs the compiled loop over its state, grows the logs, shows what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.replica import Replica
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.integrity import check_integrity
from simkv.engine.sglang.loop import advance
from simkv.engine.sglang.state import build, namespaces
from simkv.workload.workload import Workload


class SglangEngine(Replica):
    """One replica of SGLang's scheduler and radix cache over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        config: every number filled in.
        step_time: ``STEP_TIME[1]``.
        log: write the event log.
        max_events: stop logging (the run goes on without a log) beyond this many events.
        settings: the resolved settings the config was made from, for who asks the engine.
    """

    loop = staticmethod(advance)

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
        self.names = namespaces(workload)[1]
        self.config, self.counters, self.state = build(workload, config, step_time, log, max_events)

    def log_room(self) -> tuple[int, int, int]:
        """Rows, blocks and keys that must be free before the next turn."""
        c = self.counters
        return int(c.need_rows), int(c.need_blocks), int(c.need_keys)

    def log_header(self) -> dict[str, Any]:
        """What a fold must know of the engine."""
        e, s = self.state, self.choices
        return {
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
        }

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
