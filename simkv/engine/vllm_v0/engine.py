"""A vLLM V0 replica: runs the compiled loop over its state, grows the logs, shows what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import WAITING
from simkv.engine.replica import Replica
from simkv.engine.vllm_v0.loop import NO_SWAP_SPACE, advance
from simkv.engine.vllm_v0.parentage import Parentage
from simkv.engine.vllm_v0.resolve import V0Resolved
from simkv.engine.vllm_v0.state import build
from simkv.errors import EngineError
from simkv.workload.workload import Workload


class V0Engine(Replica):
    """One replica of V0's scheduler and block manager over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        settings: every setting filled in.
        step_time: ``STEP_TIME[1]``.
        log: write the event log. A request's sequences are told apart by the group of their rows.
        max_events: stop logging (the run goes on without a log) beyond this many events.
        parents: recorded beam parentage; default: drawn.

    Raises:
        InputError: the recorded parentage does not fit the workload.
    """

    loop = staticmethod(advance)

    def __init__(
        self,
        workload: Workload,
        settings: V0Resolved,
        step_time: npt.NDArray[np.void],
        *,
        log: bool,
        max_events: int | None = None,
        parents: Parentage | None = None,
    ) -> None:
        self.workload, self.settings = workload, settings
        self.max_events = max_events
        if parents is not None:
            parents.check(workload.num_output, settings.width)
        self.config, self.counters, self.state = build(workload, settings, step_time, log, max_events, parents)

    def checked(self, why: int) -> int:
        """What the loop returned.

        Raises:
            EngineError: a group has to be swapped out and host memory is full, where V0 stops as well.
        """
        if why == NO_SWAP_SPACE:
            c = self.counters
            raise EngineError(
                f"Request {self.workload.id(int(c.failed_req))} has to be swapped out, needs {int(c.failed_need):,} blocks of host"
                f" memory and finds {int(c.cpu_free):,}. V0 stops here with a RuntimeError. Raise swap_space or num_cpu_blocks."
            )
        return super().checked(why)

    def gap_room(self) -> int:
        """A request's sequences step together: one gap per request and token."""
        return len(self.state.slots)

    def log_room(self) -> tuple[int, int, int]:
        """Nothing is cached, so there are no keys."""
        need = int(self.counters.need_events)
        return need, need, 0

    def log_header(self) -> dict[str, Any]:
        """What a fold must know of the engine."""
        e, s = self.state, self.settings
        return {
            "engine": s.engine,
            "engine_version": s.version,
            "num_blocks": s.num_gpu_blocks,
            "block_size": s.block_size,
            "groups": [{"type": g.type, "window": g.window, "block_size": g.block_size} for g in s.groups],
            "hash_block_size": s.block_size,
            "scheduler_block_size": s.block_size,
            "enable_prefix_caching": False,
            "max_blocks_per_request": int(e.tables.shape[1]),
            "max_live_requests": s.max_running + 1,
            "requests": len(self.workload),
        }

    def free_queue(self) -> npt.NDArray[np.int32]:
        """Free block ids, the one taken next first."""
        out: npt.NDArray[np.int32] = self.state.free[: int(self.counters.free)][::-1].copy()
        return out

    def waiting(self) -> list[int]:
        """Requests in the waiting queue, head first."""
        e, c = self.state, self.counters
        places = (int(c.wait_head) + np.arange(int(c.wait_len))) & (len(e.queue) - 1)
        return [int(r) for r in e.queue["waiting"][places]]

    def tables(self, request: int) -> list[npt.NDArray[np.int32]]:
        """Block tables of a running or swapped request, one per sequence in the engine's order; of host blocks while swapped."""
        e, s = self.state, int(self.state.reqs["slot"][request])
        if s < 0:
            return []
        n, length = int(e.slots["num_seqs"][s]), int(e.slots["length"][s])
        lanes = e.order[s, :n].tolist()
        return [e.tables[s * self.settings.width + lane, :length].copy() for lane in lanes]

    def generated(self) -> npt.NDArray[np.int32]:
        """Tokens generated so far by each sequence of a request, shape ``[n]``."""
        e = self.state
        out: npt.NDArray[np.int32] = e.reqs["generated"].copy()
        live = np.flatnonzero(e.reqs["slot"] >= 0)
        slots = e.slots[e.reqs["slot"][live]]
        out[live] = slots["num_tokens"] - slots["num_prompt"]
        return out

    def sharing(self) -> dict[str, float | None]:
        """Share of memory saved by sharing: 1 - blocks in use / blocks the tables would need without sharing.

        ``over_time`` weighs each step with its duration, ``over_steps`` counts steps alike; ``None`` before the first.
        """
        c = self.counters
        time, steps = float(c.entry_seconds), float(c.entry_steps)
        return {
            "over_time": 1.0 - float(c.block_seconds) / time if time > 0 else None,
            "over_steps": 1.0 - float(c.block_steps) / steps if steps > 0 else None,
        }

    def check_integrity(self) -> None:
        """Raise AssertionError if the state contradicts itself (see integrity.py)."""
        from simkv.engine.vllm_v0.integrity import check_integrity

        check_integrity(self)

    def why_stalled(self) -> str:
        """What hangs, in words, after ``advance`` returned STALLED."""
        c, waiting = self.counters, int(np.count_nonzero(self.state.reqs["status"] == WAITING))
        return (
            f"Nothing can be scheduled any more: {int(c.swapped)} requests are swapped out, {waiting} wait behind them,"
            f" {int(c.free):,} of {self.settings.num_gpu_blocks - 1:,} blocks are free, and the first swapped request needs more."
            " V0 would hang here. Give it more blocks."
        )
