"""What every engine offers to the replay, the fleet and the page. Constants and types; nothing here decides anything."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from simkv.events.log import EventLog
from simkv.events.turns import Turns
from simkv.settings import KVGroup
from simkv.workload.workload import Workload

UNTIL, DONE, GROW, STALLED, SCHEDULED, PROCESSED, CRASHED = range(7)
"""Why ``advance`` returned: time reached, nothing left, a log is full, nothing can ever be scheduled again; and with
``pause``: after the scheduling half of a turn, after the output; the engine itself would have died."""

NOT_ARRIVED, WAITING, RUNNING, FINISHED, ABORTED, REJECTED = range(6)
STATUS = ("not arrived", "waiting", "running", "finished", "aborted", "rejected")

COUNTERS = (
    "turns",
    "tokens",
    "finished",
    "aborted",
    "rejected",
    "preemptions",
    "stored",
    "removed",
    "requests",
    "queries",
    "hits",
    "recompute_requests",
    "recompute_queries",
    "recompute_hits",
    "running",
    "wait_len",
    "free",
    "cached",
)
"""Names every engine's counters have. Tokens: ``tokens`` computed, ``queries`` prompt tokens looked up, ``hits`` of those
found cached; blocks (pages): ``stored``, ``removed``, ``free``, ``cached``; the rest counts requests or turns."""
GAUGES = ("running", "wait_len", "free", "cached")
"""Those of COUNTERS that say how things are now; the others only grow."""


KV_REMOVED, KV_STORED, KV_CLEARED = range(3)
"""Kinds of KV events, as a router gets them: the last block with a content left the cache, the first one entered, all left."""


class Resolved(Protocol):
    """Settings with nothing left open: what every engine's resolution has."""

    @property
    def engine(self) -> str:
        """The engine's name, as ``--engine`` takes it."""

    @property
    def version(self) -> str:
        """The release whose behaviour this is."""

    @property
    def block_size(self) -> int:
        """Tokens per block (SGLang: page)."""

    @property
    def num_gpu_blocks(self) -> int:
        """Blocks of the pool, block 0 (null block, padding) included: one less can be used."""

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """KV cache groups; one full group where an engine knows no others."""

    @property
    def hash_block_size(self) -> int:
        """Tokens per key in the event log."""

    @property
    def scheduler_block_size(self) -> int:
        """Granularity of hits in tokens."""

    @property
    def hash_algo(self) -> str:
        """How exported digests are made."""

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether finished content can be found again."""

    @property
    def max_running(self) -> int:
        """Requests that may run at once."""

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output that is accepted."""

    @property
    def token_budget(self) -> int:
        """Tokens one step may compute."""

    @property
    def stats_at_lookup(self) -> bool:
        """Whether queries and hits are counted at every lookup, not once at admission."""

    @property
    def lora_path_in_key(self) -> bool:
        """Whether an adapter's path is part of the key, not only its name."""

    @property
    def capacity(self) -> Any:
        """How the pool follows from model and GPU (``waterfall``, ``assumptions``); ``None`` if it was given."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was derived and how, and what to beware of, one sentence each."""


class Engine(Protocol):
    """One replica of an engine over a whole workload."""

    workload: Workload
    log_dropped: bool
    max_events: int | None

    @property
    def settings(self) -> Any:
        """The engine's ``Resolved``."""

    @property
    def counters(self) -> Any:
        """Record with the fields of COUNTERS, and ``now`` (seconds), ``steps``, ``empty_schedules``, ``next_turn``.

        ``next_turn``: when ``advance`` returned UNTIL, the moment at which the next turn begins if nothing else comes; else infinity.
        """

    @property
    def state(self) -> Any:
        """Flat arrays; ``state.reqs`` has arrive, scheduled, first_token, finish, hit, preempted, status per request."""

    @property
    def turns(self) -> Turns:
        """All turns so far."""

    @property
    def steps(self) -> npt.NDArray[np.void]:
        """STEP rows so far, one per turn."""

    @property
    def gaps(self) -> npt.NDArray[np.void]:
        """GAP rows so far."""

    def advance(self, until: float = np.inf, *, pause: bool = False) -> int:
        """Run until a moment of simulated time. Returns UNTIL, DONE, STALLED or CRASHED, with ``pause`` SCHEDULED or PROCESSED."""

    def event_log(self) -> EventLog | None:
        """The log so far; ``None`` if it is off or was dropped."""

    def generated(self) -> npt.NDArray[np.int32]:
        """Tokens generated per request so far, shape ``[n]``."""

    def check_integrity(self) -> None:
        """Raise AssertionError if counts, lists and tables contradict each other."""

    def why_stalled(self) -> str:
        """After ``advance`` returned STALLED: what hangs and what helps, in words."""
