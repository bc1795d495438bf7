"""A vLLM replica: runs the compiled loop over its state, grows the logs, shows what it knows.

The same object serves the simulator and a real executor: who calls ``advance`` decides how long a step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import CRASHED, DONE, GROW, KV_CLEARED, PROCESSED, SCHEDULED, STALLED, UNTIL
from simkv.engine.offload.grow import more_slots
from simkv.engine.offload.report import host_figures
from simkv.engine.replica import Replica, larger
from simkv.engine.vllm.kv_events import KV_ARRAYS, most_kv_events, writes_kv_events
from simkv.engine.vllm.loop import MAX_EMPTY_SCHEDULES, MOST_IDLE_COPYING, advance
from simkv.engine.vllm.pool import free_order
from simkv.engine.vllm.state import build
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.resolve import Resolved

__all__ = ["CRASHED", "DONE", "GROW", "MAX_EMPTY_SCHEDULES", "PROCESSED", "SCHEDULED", "STALLED", "UNTIL", "VllmEngine"]


class VllmEngine(Replica):
    """One replica of vLLM's scheduler and KV cache manager over a whole workload.

    Args:
        workload: all requests, known beforehand; they enter at their arrival time.
        settings: every setting filled in (simkv.engine.resolve).
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

    def grow(self) -> None:
        """Make room for one more turn, in the host tier as well."""
        if self.state.host is not None and self.counters.need_slots:
            self.state = more_slots(self.state, self.counters)
        if self.kv_events:
            used, need = int(self.counters.logged_kv), int(self.config.kv_events)
            self.state = self.state._replace(**{name: larger(getattr(self.state, name), used, need) for name in KV_ARRAYS})
        super().grow()
        if self.state.host is not None:
            used = int(self.counters.logged_steps)
            host_steps = larger(self.state.host.steps, used, len(self.state.steps) - used)
            self.state = self.state._replace(host=self.state.host._replace(steps=host_steps))

    def write_kv_events(self) -> None:
        """From now on write KV events, which the caller reads and throws away (simkv/fleet/kv_feed.py)."""
        assert writes_kv_events(self.settings), "not all keys are ones that routers hear of"
        self.config.kv_events = most_kv_events(self.settings, len(self.workload.actions))

    @property
    def kv_events(self) -> bool:
        """Whether it writes them."""
        return bool(self.config.kv_events)

    def restart(self, fresh: Self, at: float, live: Sequence[int]) -> None:
        """See Replica.restart; KV events go on as well."""
        kv_events, n = int(self.config.kv_events), int(self.counters.logged_kv)
        arrays = {name: larger(getattr(self.state, name), n, 1) for name in KV_ARRAYS}
        super().restart(fresh, at, live)
        self.config.kv_events = kv_events
        if kv_events:
            for array, value in zip(arrays.values(), (KV_CLEARED, 0, int(self.counters.logged_steps) - 1), strict=True):
                array[n] = value
            self.counters.logged_kv = n + 1
            self.state = self.state._replace(**arrays)

    @property
    def host_counters(self) -> dict[str, int] | None:
        """Statistics of the host tier by name (offload/report.py), never part of the device's; ``None`` without one."""
        if self.state.host is None:
            return None
        return host_figures(self.state) | {"circling": int(self.counters.empty_schedules > MOST_IDLE_COPYING)}

    def log_header(self) -> dict[str, Any]:
        """What a fold must know of the engine."""
        e, s = self.state, self.settings
        return {
            "engine": "vllm",
            "engine_version": s.profile.version,
            "num_blocks": s.num_gpu_blocks,
            "block_size": s.block_size,
            "groups": [{"type": g.type, "window": g.window, "block_size": g.block_size} for g in s.groups],
            "hash_block_size": s.hash_block_size,
            "scheduler_block_size": s.scheduler_block_size,
            "enable_prefix_caching": s.enable_prefix_caching,
            "max_blocks_per_request": int(e.tables.shape[1]),
            "max_live_requests": len(e.slots),
            "requests": len(self.workload),
        }

    def trace_connector(self, numbers: int = 1 << 20) -> None:
        """Keep the calls of the host tier's connector, at most so many numbers between two looks (for recorded runs)."""
        host = self.state.host
        assert host is not None, "no host tier"
        host.config[0].trace = 1
        self.state = self.state._replace(host=host._replace(trace=np.zeros(numbers, np.int64)))

    @property
    def host_steps(self) -> npt.NDArray[np.void] | None:
        """HOST_STEP rows so far, one beside each STEP row; ``None`` without a host tier."""
        host = self.state.host
        return None if host is None else host.steps[: int(self.counters.logged_steps)].view(np.ndarray)

    def free_queue(self) -> npt.NDArray[np.int32]:
        """Block ids in the free queue, head (next victim) first."""
        out = np.zeros(int(self.counters.free), np.int32)
        assert free_order(self.state.blocks, out) == len(out)
        return out

    def waiting(self) -> list[int]:
        """Requests in the waiting queue, head first."""
        e, n = self.state, int(self.counters.wait_len)
        if self.config.priority:
            queued = e.queue["waiting"][:n]
            x = e.reqs[queued]
            order: list[int] = queued[np.lexsort((x["name_rank"], x["tie"], x["priority"]))].tolist()
            return order
        places = (int(self.counters.wait_head) + np.arange(n)) & (len(e.queue) - 1)
        return [int(r) for r in e.queue["waiting"][places]]

    def check_integrity(self) -> None:
        """Raise AssertionError if the state contradicts itself (see integrity.py)."""
        from simkv.engine.vllm.integrity import check_integrity

        check_integrity(self)

    def why_stalled(self) -> str:
        """What hangs, in words, after ``advance`` returned STALLED; after CRASHED, what the engine dies of."""
        if self.state.host is not None and self.state.host.counters[0].crashed:
            return (
                "vLLM dies here (AssertionError in its offloading connector): a request that a cache reset preempted was admitted again"
                " in the same step with a load from host memory. Reset without reset_running_requests, or clear the host tier as well."
            )
        c, usable = self.counters, self.settings.num_gpu_blocks - 1
        waiting, running, free = int(c.wait_len), int(c.running), int(c.free)
        if c.empty_schedules <= MAX_EMPTY_SCHEDULES:
            return (
                f"The engine preempts and recomputes without end: {int(c.preemptions):,} preemptions, and {running + waiting} requests"
                f" do not finish in {usable:,} usable blocks. vLLM would go on like this for ever. Give it more blocks."
            )
        return (
            f"Nothing can be scheduled any more: {waiting} requests wait, none runs, {free:,} of {usable:,} usable blocks are free,"
            " and the first request needs more. vLLM would hang here. Give it more blocks or shorter requests."
        )

    def generated(self) -> npt.NDArray[np.int32]:
        """Tokens generated per request so far, shape ``[n]``."""
        e = self.state
        out: npt.NDArray[np.int32] = e.reqs["generated"].copy()
        for s in e.running[: int(self.counters.running)]:
            out[e.slots[s].req] = e.slots[s].num_tokens - e.slots[s].num_prompt
        return out
