"""What every engine object does alike: run the compiled loop, grow the logs, show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import COUNTERS, CRASHED, GAUGES, GROW, UNTIL
from simkv.errors import EngineError
from simkv.events.layout import ABORTED, AS_NEW, CLEARED, EVENT, HOST_CLEARED
from simkv.events.log import EventLog
from simkv.events.packed import spread
from simkv.events.turns import NO_TICKS, Turns

LOGS = {"log": "rows", "log_blocks": "blocks", "log_keys": "keys", "steps": "steps", "ticks": "ticks", "gaps": "gaps"}
"""Arrays of ``state`` that grow; the counter ``logged_…`` says how far each is used. Not every engine has ticks."""
TOTALS = tuple(name for name in COUNTERS if name not in GAUGES)
"""Counters that go on over a restart, as a dashboard's ``increase()`` makes them."""


class Replica:
    """Base of the engines. A subclass fills ``config``, ``counters`` and ``state`` and says what its log and loop need.

    ``state`` is a NamedTuple with the arrays of LOGS; ``counters`` has how far each is used, and events.
    """

    config: Any
    counters: Any
    state: Any
    log_dropped = False

    @property
    def kv_events(self) -> bool:
        """Whether it writes KV events itself (simkv/engine/vllm/kv_events.py); else they are read from its log."""
        return False

    loop: ClassVar[Any]
    """The compiled loop: ``loop(state, config, counters, until, pause)`` returns a reason of simkv/engine/contract.py."""

    def checked(self, why: int) -> int:
        """What the loop returned, where that is a reason of simkv/engine/contract.py.

        Raises:
            EngineError: it is not; the engine itself would have stopped with an error, or the loop did.
        """
        if not UNTIL <= why <= CRASHED:
            raise EngineError("A replica's compiled loop stopped with an exception. Run with NUMBA_DISABLE_JIT=1 to see which.")
        return why

    def log_header(self) -> dict[str, Any]:
        """What a fold must know of the engine."""
        raise NotImplementedError

    def log_room(self) -> tuple[int, int, int]:
        """Rows, blocks and keys that must be free in the logs before the next turn."""
        need = int(self.counters.need_events)
        return need, need, need

    def gap_room(self) -> int:
        """Gaps one turn may write."""
        return 2 * int(self.config.max_running)

    def advance(self, until: float = np.inf, *, pause: bool = False) -> int:
        """Run until virtual time ``until``; the logs grow as needed. Returns a reason of simkv/engine/contract.py, never GROW."""
        while True:
            why = self.checked(int(self.loop(self.state, self.config, self.counters, until, pause)))
            if why != GROW:
                return why
            self.grow()

    def grow(self) -> None:
        """Make room for one more turn, or give the event log up beyond ``max_events``."""
        e, c = self.state, self.counters
        if self.config.log and c.events > self.config.max_events:
            self.config.log = 0
            self.log_dropped = True
            none = np.empty(1, EVENT).view(np.recarray)
            e = e._replace(log=none, log_blocks=np.zeros(1, np.int32), log_keys=np.zeros(1, np.uint64))
        elif self.config.log:
            rows, blocks, keys = self.log_room()
            e = e._replace(
                log=larger(e.log, int(c.logged_rows), rows),
                log_blocks=larger(e.log_blocks, int(c.logged_blocks), blocks),
                log_keys=larger(e.log_keys, int(c.logged_keys), keys),
            )
        if hasattr(e, "ticks"):
            e = e._replace(ticks=larger(e.ticks, int(c.logged_ticks), 1))
        steps = larger(e.steps, int(c.logged_steps), 1)
        self.state = e._replace(steps=steps, gaps=larger(e.gaps, int(c.logged_gaps), self.gap_room()))

    @property
    def turns(self) -> Turns:
        """All turns so far, as they stand: rows may still change."""
        e, c = self.state, self.counters
        rows = e.steps[: int(c.logged_steps)].view(np.ndarray)
        ticks = e.ticks[: int(c.logged_ticks)].view(np.ndarray) if hasattr(e, "ticks") else NO_TICKS
        return Turns(rows, ticks, int(c.events))

    @property
    def steps(self) -> npt.NDArray[np.void]:
        """STEP rows so far, one per turn."""
        return self.turns.steps

    @property
    def gaps(self) -> npt.NDArray[np.void]:
        """GAP rows so far."""
        found: npt.NDArray[np.void] = self.state.gaps[: int(self.counters.logged_gaps)].view(np.ndarray)
        return found

    def restart(self, fresh: Self, at: float, live: Sequence[int]) -> None:
        """The process dies at moment ``at`` and this one takes its place; log and totals go on.

        Args:
            fresh: a replica of the same settings that has not run.
            at: seconds (steps in step mode).
            live: requests that wait or run here; they end in the log as aborted.
        """
        old, c = self.counters, fresh.counters
        logs = {name: counter for name, counter in LOGS.items() if hasattr(self.state, name)}
        for name in (*TOTALS, "events", *(f"logged_{counter}" for counter in logs.values())):
            c[name] = old[name]
        c.now = at
        c.steps = max(int(old.steps), int(np.ceil(at))) if not fresh.config.virtual else old.steps
        rows = [(req, 0, ABORTED) for req in live] + [(-1, AS_NEW, CLEARED)]
        if getattr(fresh.state, "host", None) is not None:
            rows.append((-1, 0, HOST_CLEARED))
        arrays = {name: getattr(self.state, name) for name in logs}
        arrays["steps"] = larger(arrays["steps"], int(c.logged_steps), 1)
        step = arrays["steps"][int(c.logged_steps)]
        step.fill(0)
        step.time = step.end = at
        step.schedule, step.turns, step.first_event, step.free = -1, 1, c.events, c.free
        c.logged_steps += 1
        if self.config.log:
            arrays["log"] = larger(arrays["log"], int(c.logged_rows), len(rows))
            arrays["log"].view(np.ndarray).view(EVENT)[int(c.logged_rows) : int(c.logged_rows) + len(rows)] = rows
            c.logged_rows += len(rows)
            c.events += len(rows)
        fresh.config.log = self.config.log
        self.config, self.counters, self.state = fresh.config, c, fresh.state._replace(**arrays)

    def event_log(self) -> EventLog | None:
        """The log so far (views, no copies); ``None`` if it is off or was dropped."""
        if not self.config.log:
            return None
        e, (rows, blocks) = self.state, self.mark()
        return EventLog(
            rows=e.log[:rows].view(np.ndarray).view(EVENT),
            blocks=e.log_blocks[:blocks],
            keys=e.log_keys[: int(self.counters.logged_keys)],
            turns=self.turns,
            header=self.log_header(),
        )

    def mark(self) -> tuple[int, int]:
        """Where the log stands, for ``events_since``."""
        return int(self.counters.logged_rows), int(self.counters.logged_blocks)

    def events_since(self, mark: tuple[int, int]) -> npt.NDArray[np.void]:
        """``EVENT`` rows written since a mark."""
        e, (row, block) = self.state, mark
        rows = e.log[row : int(self.counters.logged_rows)].view(np.ndarray).view(EVENT)
        return spread(rows, e.log_blocks[block : int(self.counters.logged_blocks)])


def larger(array: Any, used: int, need: int) -> Any:
    """The array if ``need`` more fit, else a copy of twice the length or more."""
    if used + need <= len(array):
        return array
    out = np.empty(max(len(array) * 2, used + need + len(array) // 2), array.dtype)
    out[:used] = array[:used]
    return out.view(np.recarray) if array.dtype.names else out
